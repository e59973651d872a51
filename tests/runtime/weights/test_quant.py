"""Do the dequantizers give what ggml's own Python package gives, bit for bit?"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from runtime.weights.quant import TENSOR_TYPES, TensorType
from tests.support.tiny_model import quantize

gguf: Any = pytest.importorskip("gguf")

KINDS = sorted(TENSOR_TYPES)
NAMES = [TENSOR_TYPES[kind].name for kind in KINDS]
ROUNDING = {0: 0.0, 1: 1e-3, 3: 0.11, 8: 0.012}  # type -> worst rounding of items in -1..1


def random_blocks(tensor_type: TensorType, count: int) -> npt.NDArray[np.uint8]:
    """Any bits, but scales that are numbers."""
    rng = np.random.default_rng(count)
    raw = rng.integers(0, 256, (count, tensor_type.block_bytes), np.uint8)
    for first, end in tensor_type.scales:
        width = np.dtype(tensor_type.scale_dtype).itemsize
        numbers = rng.normal(0, 1, (count, (end - first) // width))
        if tensor_type.name == "BF16":
            raw[:, first:end] = numbers.astype("<f4").view(np.uint8)[:, 2:]
        else:
            raw[:, first:end] = numbers.astype(f"<f{width}").view(np.uint8)
    return raw


def test_every_type_of_dense_models_is_read() -> None:
    assert set(NAMES) == {
        *("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"),
        *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
    }


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_block_sizes_are_those_of_ggml(kind: int) -> None:
    tensor_type, ggml_type = TENSOR_TYPES[kind], gguf.GGMLQuantizationType(kind)
    assert tensor_type.name == ggml_type.name
    sizes = (tensor_type.block_items, tensor_type.block_bytes)
    assert sizes == gguf.GGML_QUANT_SIZES[ggml_type]


@pytest.mark.parametrize("count", [1, 2, 97, 5000])
@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_blocks_become_what_ggml_says(kind: int, count: int) -> None:
    tensor_type = TENSOR_TYPES[kind]
    raw = random_blocks(tensor_type, count)
    want = gguf.dequantize(raw, gguf.GGMLQuantizationType(kind)).reshape(-1)
    got = tensor_type.dequantize(raw.reshape(-1))
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("kind", ROUNDING)
def test_packing_and_unpacking_loses_only_the_rounding(kind: int) -> None:
    items = np.random.default_rng(kind).uniform(-1, 1, 32 * 257).astype(np.float32)
    raw = np.frombuffer(quantize(items, kind), np.uint8)
    tensor_type = TENSOR_TYPES[kind]
    assert raw.size == items.size // tensor_type.block_items * tensor_type.block_bytes
    assert np.abs(tensor_type.dequantize(raw) - items).max() <= ROUNDING[kind]


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_scales_that_are_no_numbers_are_seen(kind: int) -> None:
    tensor_type = TENSOR_TYPES[kind]
    raw = random_blocks(tensor_type, 3)
    assert tensor_type.is_finite(raw.reshape(-1))
    width = np.dtype(tensor_type.scale_dtype).itemsize
    mask = np.array([tensor_type.exponent_mask], tensor_type.scale_dtype).view(np.uint8)
    for first, end in tensor_type.scales:
        for start in range(first, end, width):
            broken = raw.copy()
            broken[1, start : start + width] |= mask
            assert not tensor_type.is_finite(broken.reshape(-1))
            with np.errstate(all="ignore"):
                items = tensor_type.dequantize(broken.reshape(-1))
            assert not np.isfinite(items).all()


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_the_result_does_not_share_the_files_memory(kind: int) -> None:
    raw = random_blocks(TENSOR_TYPES[kind], 4).reshape(-1)
    assert not np.shares_memory(TENSOR_TYPES[kind].dequantize(raw), raw)

"""Are weights that are packed on load as near as their bits allow, in blocks that ggml reads?"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from runtime.errors import InvalidConfig
from runtime.weights.quant import TENSOR_TYPES
from runtime.weights.quantize import pack_q4_1, pack_q8_0, quantized
from runtime.weights.stored import StoredTensor

STEPS = {"Q8_0": 254, "Q4_1": 15}  # between the ends of a block


def stored(array: npt.NDArray[Any], ggml_id: int = 0) -> StoredTensor:
    raw = np.frombuffer(array.tobytes(), np.uint8)
    return StoredTensor(
        type=TENSOR_TYPES[ggml_id], shape=array.shape, num_bytes=raw.size, read=lambda: raw
    )


def weights(*shape: int, seed: int = 0) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).normal(0, 0.1, shape).astype(np.float32)


def unpacked(tensor: StoredTensor) -> npt.NDArray[np.float32]:
    return tensor.type.dequantize(tensor.read()).reshape(tensor.shape)


@pytest.mark.parametrize(("quantize", "kind"), [("int8", "Q8_0"), ("int4", "Q4_1")])
@pytest.mark.parametrize("rows", [1, 97, 40_000])
def test_no_item_is_further_than_half_a_step(quantize: str, kind: str, rows: int) -> None:
    array = weights(rows, 64)
    tensor = quantized("blk.0.ffn_up.weight", stored(array), quantize)
    assert tensor.type.name == kind
    assert tensor.num_bytes == tensor.read().size
    blocks, got = array.reshape(-1, 32), unpacked(tensor).reshape(-1, 32)
    reach = 2 * np.abs(blocks).max(1) if kind == "Q8_0" else np.ptp(blocks, axis=1)
    half_steps = 0.5 * reach / STEPS[kind]
    slack = 1e-3 * np.abs(blocks).max(1) * (1 if kind == "Q4_1" else 0.5)  # of half precision
    assert (np.abs(got - blocks).max(1) <= half_steps + slack).all()


def test_codes_are_no_worse_than_those_of_ggml() -> None:
    gguf: Any = pytest.importorskip("gguf")
    blocks = weights(5000, 32)
    for pack, ggml_id in ((pack_q8_0, 8), (pack_q4_1, 3)):
        kind = TENSOR_TYPES[ggml_id]
        ours = kind.dequantize(pack(blocks).reshape(-1)).reshape(blocks.shape)
        theirs = gguf.quantize(blocks, gguf.GGMLQuantizationType(ggml_id))
        theirs = gguf.dequantize(theirs, gguf.GGMLQuantizationType(ggml_id))
        assert np.square(ours - blocks).mean() <= np.square(theirs - blocks).mean()


@pytest.mark.parametrize("pack", [pack_q8_0, pack_q4_1])
def test_constant_and_empty_blocks(pack: Any) -> None:
    kind = TENSOR_TYPES[8 if pack is pack_q8_0 else 3]
    for value in (0.0, 0.5, -2.0):
        block = np.full((3, 32), value, np.float32)
        np.testing.assert_allclose(kind.dequantize(pack(block).reshape(-1)), value, rtol=1e-3)


@pytest.mark.parametrize("pack", [pack_q8_0, pack_q4_1])
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e30])
def test_what_is_too_large_or_no_number_shows_in_the_scale(pack: Any, value: float) -> None:
    blocks = weights(2, 32)
    blocks[1, 5] = value
    kind = TENSOR_TYPES[8 if pack is pack_q8_0 else 3]
    assert not kind.is_finite(pack(blocks).reshape(-1))


def test_only_float_matrices_are_packed() -> None:
    norm, narrow = stored(weights(64)), stored(weights(4, 24))
    packed = stored(np.zeros((4, 34), np.uint8), 8)
    for tensor in (norm, narrow, packed):
        assert quantized("blk.0.x.weight", tensor, "int4") is tensor
    wide = stored(weights(4, 64))
    assert quantized("blk.0.x.weight", wide, "none") is wide


@pytest.mark.parametrize("name", ["token_embd.weight", "output.weight"])
def test_embedding_and_head_keep_8_bits(name: str) -> None:
    assert quantized(name, stored(weights(4, 64)), "int4").type.name == "Q8_0"


def test_half_precision_is_packed_as_what_it_is() -> None:
    array = weights(8, 64).astype(np.float16)
    got = quantized("x", stored(array, 1), "int8").read()
    want = quantized("x", stored(array.astype(np.float32)), "int8").read()
    np.testing.assert_array_equal(got, want)


def test_unknown_ways_are_refused() -> None:
    with pytest.raises(InvalidConfig):
        quantized("x", stored(weights(4, 64)), "int3")

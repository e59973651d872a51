"""Do the dequantizers follow the block formulas, written here item by item?"""

import numpy as np
import pytest

from runtime.weights.quant import TENSOR_TYPES
from tests.support.tiny_model import quantize

KINDS = {0: 0.0, 1: 1e-3, 3: 0.11, 8: 0.012}  # type -> worst rounding of items in -1..1


def half(data: bytes) -> float:
    return float(np.frombuffer(data, "<f2")[0])


def formula(kind: int, block: bytes) -> list[float]:
    """One block by the text of ggml's definition."""
    if kind == 8:
        return [half(block[:2]) * (b - 256 if b > 127 else b) for b in block[2:]]
    nibbles = [b & 15 for b in block[4:]] + [b >> 4 for b in block[4:]]
    return [half(block[:2]) * q + half(block[2:4]) for q in nibbles]


@pytest.mark.parametrize("kind", [3, 8])
@pytest.mark.parametrize("num_blocks", [1, 2, 97])
def test_blocks_follow_the_formula(kind: int, num_blocks: int) -> None:
    tensor_type = TENSOR_TYPES[kind]
    rng = np.random.default_rng(num_blocks)
    raw = rng.integers(0, 256, (num_blocks, tensor_type.block_bytes), np.uint8)
    halves = 1 if kind == 8 else 2
    scales = rng.normal(0, 1, (num_blocks, halves)).astype("<f2")
    raw[:, : 2 * halves] = scales.view(np.uint8)
    want = [item for block in raw for item in formula(kind, block.tobytes())]
    got = tensor_type.dequantize(raw.reshape(-1))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, np.array(want, np.float64), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_packing_and_unpacking_loses_only_the_rounding(kind: int) -> None:
    items = np.random.default_rng(kind).uniform(-1, 1, 32 * 257).astype(np.float32)
    raw = np.frombuffer(quantize(items, kind), np.uint8)
    tensor_type = TENSOR_TYPES[kind]
    assert raw.size == items.size // tensor_type.block_items * tensor_type.block_bytes
    assert np.abs(tensor_type.dequantize(raw) - items).max() <= KINDS[kind]


def test_the_result_does_not_share_the_files_memory() -> None:
    raw = np.zeros(16, np.uint8)
    assert TENSOR_TYPES[0].dequantize(raw).flags.owndata

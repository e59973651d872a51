"""Which storage types are there?  One registry line per ggml type.

Block layouts follow ggml [ggml-common.h]: a block is a run of consecutive items of one row, packed
with the half-precision scales that they share.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from runtime.weights import quant_blocks, quant_k
from runtime.weights.quant_blocks import Bytes, Floats

_ITEMS_AT_ONCE = 1 << 18  # what unpacking needs besides the result stays in the cache


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorType:
    """A storage type.

    ``unpack`` takes (n, block_bytes) uint8 and returns (n, block_items) float32, new.
    ``scales`` are the first and the last byte + 1 of each run of scales in a block.
    """

    name: str
    ggml_id: int  # enum ggml_type
    block_items: int
    block_bytes: int
    unpack: Callable[[Bytes], Floats]
    scales: tuple[tuple[int, int], ...]
    scale_dtype: str = "<u2"
    exponent_mask: int = 0x7C00  # of an IEEE half: all ones mean infinite or not a number

    def dequantize(self, raw: Bytes) -> Floats:
        """Whole blocks, (bytes,) uint8 -> (items,) float32 in a new array."""
        blocks = raw.reshape(-1, self.block_bytes)
        items = np.empty((len(blocks), self.block_items), np.float32)
        step = max(1, _ITEMS_AT_ONCE // self.block_items)
        for start in range(0, len(blocks), step):
            items[start : start + step] = self.unpack(blocks[start : start + step])
        return items.reshape(-1)

    def is_finite(self, raw: Bytes) -> bool:
        """Whether no scale (of a float type: no item) is infinite or not a number."""
        blocks = raw.reshape(-1, self.block_bytes)
        step = max(1, _ITEMS_AT_ONCE // self.block_items)
        mask = self.exponent_mask
        for start in range(0, len(blocks), step):
            some = blocks[start : start + step]
            for first, end in self.scales:
                scales = np.ascontiguousarray(some[:, first:end]).view(self.scale_dtype)
                if ((scales & mask) == mask).any():
                    return False
        return True


_ALL = (
    TensorType(
        name="F32",
        ggml_id=0,
        block_items=1,
        block_bytes=4,
        unpack=quant_blocks.unpack_f32,
        scales=((0, 4),),
        scale_dtype="<u4",
        exponent_mask=0x7F800000,
    ),
    TensorType(
        name="F16",
        ggml_id=1,
        block_items=1,
        block_bytes=2,
        unpack=quant_blocks.unpack_f16,
        scales=((0, 2),),
    ),
    TensorType(
        name="BF16",
        ggml_id=30,
        block_items=1,
        block_bytes=2,
        unpack=quant_blocks.unpack_bf16,
        scales=((0, 2),),
        exponent_mask=0x7F80,
    ),
    TensorType(
        name="Q4_0",
        ggml_id=2,
        block_items=32,
        block_bytes=18,
        unpack=quant_blocks.unpack_q4_0,
        scales=((0, 2),),
    ),
    TensorType(
        name="Q4_1",
        ggml_id=3,
        block_items=32,
        block_bytes=20,
        unpack=quant_blocks.unpack_q4_1,
        scales=((0, 4),),
    ),
    TensorType(
        name="Q5_0",
        ggml_id=6,
        block_items=32,
        block_bytes=22,
        unpack=quant_blocks.unpack_q5_0,
        scales=((0, 2),),
    ),
    TensorType(
        name="Q5_1",
        ggml_id=7,
        block_items=32,
        block_bytes=24,
        unpack=quant_blocks.unpack_q5_1,
        scales=((0, 4),),
    ),
    TensorType(
        name="Q8_0",
        ggml_id=8,
        block_items=32,
        block_bytes=34,
        unpack=quant_blocks.unpack_q8_0,
        scales=((0, 2),),
    ),
    TensorType(
        name="Q2_K",
        ggml_id=10,
        block_items=256,
        block_bytes=84,
        unpack=quant_k.unpack_q2_k,
        scales=((80, 84),),
    ),
    TensorType(
        name="Q3_K",
        ggml_id=11,
        block_items=256,
        block_bytes=110,
        unpack=quant_k.unpack_q3_k,
        scales=((108, 110),),
    ),
    TensorType(
        name="Q4_K",
        ggml_id=12,
        block_items=256,
        block_bytes=144,
        unpack=quant_k.unpack_q4_k,
        scales=((0, 4),),
    ),
    TensorType(
        name="Q5_K",
        ggml_id=13,
        block_items=256,
        block_bytes=176,
        unpack=quant_k.unpack_q5_k,
        scales=((0, 4),),
    ),
    TensorType(
        name="Q6_K",
        ggml_id=14,
        block_items=256,
        block_bytes=210,
        unpack=quant_k.unpack_q6_k,
        scales=((208, 210),),
    ),
)

TENSOR_TYPES: Mapping[int, TensorType] = {kind.ggml_id: kind for kind in _ALL}

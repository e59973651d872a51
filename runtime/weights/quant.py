"""How does a packed tensor become float32?  One function and one registry line per GGUF type.

Block layouts follow ggml [ggml-common.h]: a block is a run of consecutive items of one row.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorType:
    """A storage type: ``dequantize`` takes whole blocks as (bytes,) uint8, returns (items,)."""

    name: str
    ggml_id: int  # enum ggml_type
    block_items: int
    block_bytes: int
    dequantize: Callable[[Bytes], Floats]


def dequantize_f32(raw: Bytes) -> Floats:
    """Plain little-endian float32, copied."""
    return raw.view("<f4").astype(np.float32)


def dequantize_f16(raw: Bytes) -> Floats:
    """IEEE half precision."""
    return raw.view("<f2").astype(np.float32)


def dequantize_q8_0(raw: Bytes) -> Floats:
    """block_q8_0: half scale d, 32 int8 q; x = d q."""
    blocks = raw.reshape(-1, 34)
    scale = blocks[:, :2].copy().view("<f2").astype(np.float32)
    items = blocks[:, 2:].view(np.int8).astype(np.float32)
    items *= scale
    return items.reshape(-1)


def dequantize_q4_1(raw: Bytes) -> Floats:
    """block_q4_1: half scale d, half minimum m, 16 bytes; x = d q + m.

    Byte j holds item j in its low nibble and item j + 16 in its high nibble.
    """
    blocks = raw.reshape(-1, 20)
    scale_min = blocks[:, :4].copy().view("<f2").astype(np.float32)
    packed = blocks[:, 4:]
    items = np.empty((len(blocks), 32), np.float32)
    np.bitwise_and(packed, 0x0F, out=items[:, :16], casting="unsafe")
    np.right_shift(packed, 4, out=items[:, 16:], casting="unsafe")
    items *= scale_min[:, :1]
    items += scale_min[:, 1:]
    return items.reshape(-1)


_ALL = (
    TensorType(name="F32", ggml_id=0, block_items=1, block_bytes=4, dequantize=dequantize_f32),
    TensorType(name="F16", ggml_id=1, block_items=1, block_bytes=2, dequantize=dequantize_f16),
    TensorType(name="Q4_1", ggml_id=3, block_items=32, block_bytes=20, dequantize=dequantize_q4_1),
    TensorType(name="Q8_0", ggml_id=8, block_items=32, block_bytes=34, dequantize=dequantize_q8_0),
)
TENSOR_TYPES: Mapping[int, TensorType] = {kind.ggml_id: kind for kind in _ALL}

"""How are float matrices made smaller when a model is loaded?  In ggml's own blocks of 32.

int8 gives Q8_0 blocks, int4 Q4_1 blocks (8.5 and 5 bits an item), so that whatever reads GGUF
files reads these. Embedding and head stay at 8 bits in int4: an error there is in every logit.
Vectors, tensors that a file has packed, and rows that are no multiple of 32 stay as they are.
"""

from typing import Literal, TypeAlias, get_args

import numpy as np

from runtime.errors import InvalidConfig
from runtime.weights.quant import TENSOR_TYPES
from runtime.weights.quant_blocks import Bytes, Floats
from runtime.weights.stored import StoredTensor

Quantize: TypeAlias = Literal["none", "int8", "int4"]
QUANTIZE: tuple[Quantize, ...] = get_args(Quantize)

_FLOATS = ("F32", "F16", "BF16")
_Q4_1, _Q8_0 = TENSOR_TYPES[3], TENSOR_TYPES[8]
_BLOCK = 32
_ITEMS_AT_ONCE = 1 << 16  # what packing needs besides stays in the cache
_KEPT_AT_8_BITS = ("token_embd.weight", "output.weight")


def quantized(name: str, tensor: StoredTensor, quantize: str) -> StoredTensor:
    """``tensor`` packed as asked for; packing happens when it is read.

    Raises: InvalidConfig for an unknown ``quantize``.
    """
    if quantize not in QUANTIZE:
        raise InvalidConfig(f"quantize {quantize!r} is not one of {QUANTIZE}")
    is_matrix = len(tensor.shape) == 2 and tensor.shape[-1] % _BLOCK == 0
    if quantize == "none" or not is_matrix or tensor.type.name not in _FLOATS:
        return tensor
    eight_bits = quantize == "int8" or name in _KEPT_AT_8_BITS
    kind, pack = (_Q8_0, pack_q8_0) if eight_bits else (_Q4_1, pack_q4_1)
    num_blocks = tensor.shape[0] * tensor.shape[1] // _BLOCK

    def read() -> Bytes:
        raw = tensor.read()
        packed = np.empty((num_blocks, kind.block_bytes), np.uint8)
        step, item_bytes = _ITEMS_AT_ONCE // _BLOCK, tensor.type.block_bytes
        for start in range(0, num_blocks, step):
            first, end = (at * _BLOCK * item_bytes for at in (start, start + step))
            items = tensor.type.dequantize(raw[first:end]).reshape(-1, _BLOCK)
            packed[start : start + step] = pack(items)
        return packed.reshape(-1)

    return StoredTensor(
        type=kind, shape=tensor.shape, num_bytes=num_blocks * kind.block_bytes, read=read
    )


def pack_q8_0(blocks: Floats) -> Bytes:
    """(n, 32) -> (n, 34): codes are rounded against the scale as it is stored."""
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused by its scale
        scale = (np.abs(blocks).max(axis=1, keepdims=True) / 127).astype("<f2")
        codes = np.rint(blocks * _inverse(scale)).clip(-127, 127).astype(np.int8)
    return np.hstack([scale.view(np.uint8), codes.view(np.uint8)])


def pack_q4_1(blocks: Floats) -> Bytes:
    """(n, 32) -> (n, 20): 16 steps from the least item to the greatest."""
    with np.errstate(over="ignore", invalid="ignore"):
        low = blocks.min(axis=1, keepdims=True).astype("<f2")
        reach = blocks.max(axis=1, keepdims=True) - low.astype(np.float32)
        scale = (reach / 15).astype("<f2")
        codes = np.rint((blocks - low.astype(np.float32)) * _inverse(scale)).clip(0, 15)
    items = np.nan_to_num(codes).astype(np.uint8)
    nibbles = items[:, :16] | (items[:, 16:] << 4)
    return np.hstack([scale.view(np.uint8), low.view(np.uint8), nibbles])


def _inverse(scale: np.ndarray) -> Floats:
    """1 / scale, 0 for 0."""
    wide = scale.astype(np.float32)
    return np.divide(1, wide, out=np.zeros_like(wide), where=wide > 0)

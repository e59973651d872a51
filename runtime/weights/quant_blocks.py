"""How do plain types and blocks of 32 become float32?  [ggml-common.h, block_q4_0 to block_q8_0]

Of 16 bytes of nibbles, byte j holds item j in its low half and item j + 16 in its high half.
Every function takes blocks as (n, bytes) uint8 and returns (n, items) float32.
"""

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


def unpack_f32(blocks: Bytes) -> Floats:
    return np.ascontiguousarray(blocks).view("<f4").astype(np.float32)


def unpack_f16(blocks: Bytes) -> Floats:
    return np.ascontiguousarray(blocks).view("<f2").astype(np.float32)


def unpack_bf16(blocks: Bytes) -> Floats:
    """The upper half of a float32."""
    upper = np.ascontiguousarray(blocks).view("<u2").astype(np.uint32)
    return (upper << 16).view(np.float32)


def unpack_q4_0(blocks: Bytes) -> Floats:
    """Half scale d, 16 bytes; x = d (q - 8)."""
    return (nibbles(blocks[:, 2:]) - 8) * halves(blocks, 0)


def unpack_q4_1(blocks: Bytes) -> Floats:
    """Half scale d, half minimum m, 16 bytes; x = d q + m."""
    return nibbles(blocks[:, 4:]) * halves(blocks, 0) + halves(blocks, 2)


def unpack_q5_0(blocks: Bytes) -> Floats:
    """Half scale d, 32 fifth bits, 16 bytes; x = d (q - 16)."""
    items = nibbles(blocks[:, 6:]) + 16 * _bits(blocks[:, 2:6])
    return (items - 16) * halves(blocks, 0)


def unpack_q5_1(blocks: Bytes) -> Floats:
    """Half scale d, half minimum m, 32 fifth bits, 16 bytes; x = d q + m."""
    items = nibbles(blocks[:, 8:]) + 16 * _bits(blocks[:, 4:8])
    return items * halves(blocks, 0) + halves(blocks, 2)


def unpack_q8_0(blocks: Bytes) -> Floats:
    """Half scale d, 32 int8 q; x = d q."""
    return blocks[:, 2:].view(np.int8).astype(np.float32) * halves(blocks, 0)


def halves(blocks: Bytes, start: int) -> Floats:
    """The half-precision number at ``start`` of each block, (n, 1)."""
    return np.ascontiguousarray(blocks[:, start : start + 2]).view("<f2").astype(np.float32)


def nibbles(packed: Bytes) -> Floats:
    """(n, 16) -> (n, 32): low halves first."""
    return np.concatenate([packed & 0x0F, packed >> 4], axis=1).astype(np.float32)


def _bits(packed: Bytes) -> Floats:
    """(n, 4) -> (n, 32): bit j is of item j."""
    return np.unpackbits(packed, axis=1, bitorder="little").astype(np.float32)

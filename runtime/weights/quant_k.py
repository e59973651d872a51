"""How do super-blocks of 256 become float32?  [ggml-common.h, block_q2_K to block_q6_K]

A super-block has 8 groups of 32 or 16 of 16 items, each with a small integer scale (and minimum)
that half-precision numbers of the whole block multiply. Every function takes blocks as (n, bytes)
uint8 and returns (n, 256) float32.
"""

import numpy as np

from runtime.weights.quant_blocks import Bytes, Floats, halves


def unpack_q2_k(blocks: Bytes) -> Floats:
    """16 bytes of scale (low nibble) and minimum, 64 bytes, half d, half dmin."""
    small = blocks[:, :16]
    scale = halves(blocks, 80) * (small & 0x0F)
    minimum = halves(blocks, 82) * (small >> 4)
    groups = _two_bits(blocks[:, 16:80]).reshape(-1, 16, 16).astype(np.float32)
    return _joined(groups * scale[:, :, None] - minimum[:, :, None])


def unpack_q3_k(blocks: Bytes) -> Floats:
    """32 bytes of third bits, 64 bytes of lower two, 12 bytes of 6-bit scales - 32, half d."""
    low_bits = _two_bits(blocks[:, 32:96]).astype(np.int8)
    # Bit g of byte j is of item 32 g + j; where it is unset, 4 is subtracted.
    third_bits = _unshifted(blocks[:, None, :32], step=1, count=8, mask=1)
    items = low_bits + 4 * third_bits.reshape(-1, 256).astype(np.int8) - 4
    packed = blocks[:, 96:108]
    low = np.concatenate([packed[:, :8] & 0x0F, packed[:, :8] >> 4], axis=1)
    high = _unshifted(packed[:, None, 8:], step=2, count=4, mask=3).reshape(-1, 16)
    scale = halves(blocks, 108) * ((low | (high << 4)).astype(np.int8) - 32)
    return _joined(items.reshape(-1, 16, 16) * scale[:, :, None])


def unpack_q4_k(blocks: Bytes) -> Floats:
    """Half d, half dmin, 12 bytes of 6-bit scales and minima, 128 bytes."""
    scale, minimum = _scales_and_minima(blocks)
    groups = _alternating_nibbles(blocks[:, 16:])
    return _joined(groups * scale[:, :, None] - minimum[:, :, None])


def unpack_q5_k(blocks: Bytes) -> Floats:
    """As q4_k with 32 bytes of fifth bits before the nibbles: bit g of byte j, item 32 g + j."""
    scale, minimum = _scales_and_minima(blocks)
    fifth_bits = _unshifted(blocks[:, None, 16:48], step=1, count=8, mask=1)
    groups = _alternating_nibbles(blocks[:, 48:]) | (fifth_bits.reshape(-1, 8, 32) << 4)
    return _joined(groups * scale[:, :, None] - minimum[:, :, None])


def unpack_q6_k(blocks: Bytes) -> Floats:
    """128 bytes of lower four bits, 64 of upper two, 16 int8 scales, half d; x = d s (q - 32)."""
    packed = blocks[:, :128].reshape(-1, 2, 1, 64)
    lower = np.concatenate([packed & 0x0F, packed >> 4], axis=2).reshape(-1, 256)
    upper = _two_bits(blocks[:, 128:192])
    items = (lower | (upper << 4)).astype(np.int8) - 32
    scale = halves(blocks, 208) * blocks[:, 192:208].view(np.int8)
    return _joined(items.reshape(-1, 16, 16) * scale[:, :, None])


def _two_bits(packed: Bytes) -> Bytes:
    """(n, 64) -> (n, 256): of each half's 32 bytes, bits 0-1 are the first 32 items, and so on."""
    return _unshifted(packed.reshape(-1, 2, 1, 32), step=2, count=4, mask=3).reshape(-1, 256)


def _unshifted(packed: Bytes, *, step: int, count: int, mask: int) -> Bytes:
    """(..., 1, m) -> (..., count, m): ``count`` fields of each byte, the lowest first."""
    shifts = np.arange(0, step * count, step, dtype=np.uint8)[:, None]
    return (packed >> shifts) & np.uint8(mask)


def _alternating_nibbles(packed: Bytes) -> Bytes:
    """(n, 128) -> (n, 8, 32): each 32 bytes hold a group in low, the next in high nibbles."""
    pairs = packed.reshape(-1, 4, 1, 32)
    return np.concatenate([pairs & 0x0F, pairs >> 4], axis=2).reshape(-1, 8, 32)


def _scales_and_minima(blocks: Bytes) -> tuple[Floats, Floats]:
    """(n, 8) each.

    Bytes 0-3 and 4-7 hold the first four scales and minima in six bits; their upper two bits are
    those of the last four, whose lower four bits are the nibbles of bytes 8-11.
    """
    first, second, third = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scale = np.concatenate([first & 63, (third & 0x0F) | ((first >> 6) << 4)], axis=1)
    minimum = np.concatenate([second & 63, (third >> 4) | ((second >> 6) << 4)], axis=1)
    return halves(blocks, 0) * scale, halves(blocks, 2) * minimum


def _joined(groups: Floats) -> Floats:
    return groups.reshape(-1, 256)

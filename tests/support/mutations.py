"""Seeded damage to bytes: what a parser of outside data must survive."""

import random
import tracemalloc
from collections.abc import Callable, Iterator

from attestation.errors import AttestationError


def mutations(data: bytes, count: int, *, seed: int) -> Iterator[bytes]:
    """``count`` damaged copies: bits flipped, bytes set, cut, doubled, inserted or left out."""
    rng = random.Random(seed)
    for _ in range(count):
        damaged = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            _damage(damaged, rng)
        yield bytes(damaged)


def flipped_bits(data: bytes, count: int, *, seed: int) -> Iterator[tuple[int, bytes]]:
    """(bit index, copy with that bit flipped) of ``count`` different bits."""
    rng = random.Random(seed)
    for bit in rng.sample(range(8 * len(data)), min(count, 8 * len(data))):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        yield bit, bytes(damaged)


def count_refused(
    parse: Callable[[bytes], object], data: bytes, *, count: int, seed: int, max_peak_bytes: int
) -> int:
    """How many of ``count`` damaged copies are refused, each with a code; others may be harmless.

    Any other exception fails the test, and so does more than ``max_peak_bytes`` of memory.
    """
    num_refused = 0
    parse(data)
    tracemalloc.start()
    try:
        for damaged in mutations(data, count, seed=seed):
            try:
                parse(damaged)
            except AttestationError as err:
                assert err.code  # noqa: PT017 - there is nothing to wait for
                num_refused += 1
        assert tracemalloc.get_traced_memory()[1] < max_peak_bytes
    finally:
        tracemalloc.stop()
    return num_refused


def _damage(data: bytearray, rng: random.Random) -> None:
    if not data:
        data.extend(rng.randbytes(4))
        return
    at = rng.randrange(len(data))
    end = min(len(data), at + rng.randint(1, 16))
    kind = rng.randrange(6)
    if kind == 0:
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        data[at] = rng.choice((0x00, 0x7F, 0x80, 0x9F, 0xBF, 0xFF, 0x22, 0x5B, 0x7B))
    elif kind == 2:
        del data[at:]
    elif kind == 3:
        data[at:at] = data[at:end]
    elif kind == 4:
        data[at:at] = rng.randbytes(rng.randint(1, 9))
    else:
        del data[at:end]

"""How much a cache keeps: its usual bounds, and both bounds at their very edge."""

import pytest

from attestation.cache import MAX_BYTES, MAX_ENTRIES, VerifiedCache


def test_the_usual_bounds() -> None:
    cache = VerifiedCache()
    for number in range(MAX_ENTRIES + 1):
        cache.recall(("entry", number), lambda: 1)

    assert (MAX_ENTRIES, MAX_BYTES) == (256, 8 * 1024 * 1024)
    assert len(cache) == 256


@pytest.mark.parametrize(("extra_bytes", "kept"), [(0, 2), (1, 1)])
def test_keys_may_fill_the_bound_to_its_last_byte(extra_bytes: int, kept: int) -> None:
    cache = VerifiedCache(max_bytes=20)
    cache.recall((b"a" * 10,), lambda: 1)
    cache.recall((b"b" * (10 + extra_bytes),), lambda: 2)

    assert len(cache) == kept
    assert cache.num_bytes == (20 if kept == 2 else 11)


def test_the_usual_bytes() -> None:
    cache = VerifiedCache()
    cache.recall((bytes(MAX_BYTES),), lambda: 1)
    assert len(cache) == 1
    cache.recall((bytes(MAX_BYTES + 1),), lambda: 2)
    assert len(cache) == 0

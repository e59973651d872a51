"""Was exactly this endorsement verified before?  Saves signatures of what seldom changes.

What is kept follows from its key alone: the bytes that were verified and the certificate that they
were verified with. Whether it is current, revoked or under a pinned root is not kept; the verifier
asks that on every call. A failure is never kept.
"""

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import TypeVar, cast

from attestation.anchors import AnchorFamily, TrustAnchors
from attestation.x509 import VerifiedChain

Verified = TypeVar("Verified")
Key = tuple[object, ...]  # what kind of object, its bytes, and what it was verified with

MAX_ENTRIES = 256  # seven a platform, four or five of them shared by a whole fleet, and its GPUs
MAX_BYTES = 8 * 1024 * 1024  # of keys; a platform's have about 30 KB


class VerifiedCache:
    """Bounded, least recently used first out; made by the caller, safe to share between threads.

    Keys hold the bytes themselves and are compared whole; certificates may be named by SHA-256.
    """

    def __init__(self, *, max_entries: int = MAX_ENTRIES, max_bytes: int = MAX_BYTES) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._verified: OrderedDict[Key, object] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._verified)

    @property
    def num_bytes(self) -> int:
        """Bytes held by keys."""
        return self._num_bytes

    def recall(self, key: Key, verify: Callable[[], Verified]) -> Verified:
        """What ``verify`` returned for this key before, or returns now.

        Raises: whatever ``verify`` raises; then nothing is kept.
        """
        with self._lock:
            known = self._verified.get(key)
            if known is not None:
                self._verified.move_to_end(key)
                return cast("Verified", known)
        verified = verify()
        with self._lock:
            if key not in self._verified:
                self._verified[key] = verified
                self._num_bytes += _size(key)
            while len(self._verified) > self._max_entries or self._num_bytes > self._max_bytes:
                oldest, _ = self._verified.popitem(last=False)
                self._num_bytes -= _size(oldest)
        return verified


def once(cache: VerifiedCache | None, key: Key, verify: Callable[[], Verified]) -> Verified:
    """``recall`` of a cache that may not be there.  Raises: whatever ``verify`` raises."""
    return verify() if cache is None else cache.recall(key, verify)


def once_chain(
    cache: VerifiedCache | None,
    key: Key,
    verify: Callable[[], VerifiedChain],
    *,
    family: AnchorFamily,
    anchors: TrustAnchors,
) -> VerifiedChain:
    """A chain seen before counts only while its root is pinned as it was then.

    Raises: whatever ``verify`` raises.
    """
    known = once(cache, key, verify)
    return known if anchors.find(family, known.root.sha256) == known.anchor else verify()


def _size(key: Key) -> int:
    return sum(len(part) for part in key if isinstance(part, bytes | str))

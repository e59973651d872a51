"""Which idle cached block is given up first?

A policy is a small class and one line in the registry. It sees blocks only while nobody holds them.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from runtime.errors import InvalidConfig


class EvictionPolicy(Protocol):
    """An ordered set of idle block ids."""

    def __len__(self) -> int: ...

    def add(self, block_id: int) -> None:
        """The block's last holder let go of it."""

    def remove(self, block_id: int) -> None:
        """Somebody holds the block again."""

    def pop_victim(self) -> int:
        """Remove and return the block to overwrite; the caller knows that there is one."""


class LruEviction:
    """Least recently released first. Tails are released before heads: a chain dies tail first."""

    def __init__(self) -> None:
        self._idle: dict[int, None] = {}  # in order of release

    def __len__(self) -> int:
        return len(self._idle)

    def add(self, block_id: int) -> None:
        self._idle[block_id] = None

    def remove(self, block_id: int) -> None:
        del self._idle[block_id]

    def pop_victim(self) -> int:
        block_id = next(iter(self._idle))
        del self._idle[block_id]
        return block_id


EVICTION_POLICIES: Mapping[str, Callable[[], EvictionPolicy]] = {"lru": LruEviction}


def make_eviction_policy(name: str) -> EvictionPolicy:
    """Raises: InvalidConfig for a name that is not registered."""
    if name not in EVICTION_POLICIES:
        raise InvalidConfig(f"eviction must be one of {', '.join(sorted(EVICTION_POLICIES))}")
    return EVICTION_POLICIES[name]()

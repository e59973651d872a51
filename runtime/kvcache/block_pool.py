"""Who holds each block of the KV cache?

A block is free (contents worthless), cached (contents can be found by key, held by nobody) or used
(held by one or more sequences), and ``num_free + num_cached + num_used == num_blocks`` always.
"""

from collections.abc import Callable, Iterable

from runtime.errors import InvariantBroken
from runtime.kvcache.eviction import EvictionPolicy


class BlockPool:
    """Block ids ``0 .. num_blocks - 1`` with reference counts; knows nothing of what is in them.

    ``on_evict`` is called with the id of a cached block just before it is handed out for other
    contents.
    """

    def __init__(
        self, num_blocks: int, *, eviction: EvictionPolicy, on_evict: Callable[[int], None]
    ) -> None:
        self.num_blocks = num_blocks
        self._ref_counts = [0] * num_blocks
        self._is_keyed = [False] * num_blocks
        self._free = list(range(num_blocks - 1, -1, -1))  # a stack: low ids first, then the warmest
        self._idle = eviction
        self._on_evict = on_evict

    @property
    def num_free(self) -> int:
        return len(self._free)

    @property
    def num_cached(self) -> int:
        return len(self._idle)

    @property
    def num_used(self) -> int:
        return self.num_blocks - len(self._free) - len(self._idle)

    @property
    def num_available(self) -> int:
        """Blocks that ``allocate`` could hand out now."""
        return len(self._free) + len(self._idle)

    def ref_count(self, block_id: int) -> int:
        return self._ref_counts[block_id]

    def is_keyed(self, block_id: int) -> bool:
        return self._is_keyed[block_id]

    def count_idle(self, block_ids: Iterable[int]) -> int:
        """How many of these nobody holds."""
        ref_counts = self._ref_counts
        return sum(ref_counts[block_id] == 0 for block_id in block_ids)

    def touch(self, block_id: int) -> None:
        """If nobody holds the block, let it be evicted as if it was released only now."""
        if self._ref_counts[block_id] == 0:
            self._idle.remove(block_id)
            self._idle.add(block_id)

    def allocate(self) -> int:
        """A block of worthless contents, held once.

        Raises: InvariantBroken when none is available; ask ``num_available`` first.
        """
        if self._free:
            block_id = self._free.pop()
        elif len(self._idle):
            block_id = self._idle.pop_victim()
            self._is_keyed[block_id] = False
            self._on_evict(block_id)
        else:
            raise InvariantBroken("allocate: every block is held")
        self._ref_counts[block_id] = 1
        return block_id

    def acquire(self, block_id: int) -> None:
        """Hold a block once more, for its contents.

        Raises: InvariantBroken when the block has none.
        """
        if self._ref_counts[block_id] == 0:
            if not self._is_keyed[block_id]:
                raise InvariantBroken(f"acquire: block {block_id} is free")
            self._idle.remove(block_id)
        self._ref_counts[block_id] += 1

    def set_keyed(self, block_id: int) -> None:
        """From now on the contents can be found by key: keep them when the last holder lets go.

        Raises: InvariantBroken when nobody holds the block.
        """
        if self._ref_counts[block_id] == 0:
            raise InvariantBroken(f"set_keyed: nobody holds block {block_id}")
        self._is_keyed[block_id] = True

    def release(self, block_id: int) -> None:
        """Let go of a block once.

        Raises: InvariantBroken when nobody holds it.
        """
        if self._ref_counts[block_id] == 0:
            raise InvariantBroken(f"release: nobody holds block {block_id}")
        self._ref_counts[block_id] -= 1
        if self._ref_counts[block_id] > 0:
            return
        if self._is_keyed[block_id]:
            self._idle.add(block_id)
        else:
            self._free.append(block_id)

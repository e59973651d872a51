"""Which blocks are being computed right now, and by whom?

The leader of a key is the running sequence that will fill a block with that key's contents. Keys
include the salt, so nobody can wait for another tenant's block.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Rows

from runtime.kvcache.keys import BlockKey
from runtime.sequence import Sequence


class InFlightBlocks:
    """Keys of promised blocks. A promise ends when it is kept, or its leader stops running."""

    def __init__(self) -> None:
        self._leaders: dict[BlockKey, Sequence] = {}

    def __len__(self) -> int:
        return len(self._leaders)

    def __contains__(self, key: BlockKey) -> bool:
        return key in self._leaders

    def leader(self, key: BlockKey) -> Sequence | None:
        return self._leaders.get(key)

    def run_of_one_leader(self, keys: Rows[BlockKey]) -> Rows[BlockKey]:
        """The leading ones of these keys that one and the same sequence computes."""
        leader = self._leaders.get(keys[0]) if keys else None
        if leader is None:
            return keys[:0]
        num_keys = 1
        while num_keys < len(keys) and self._leaders.get(keys[num_keys]) is leader:
            num_keys += 1
        return keys[:num_keys]

    def promise(self, leader: Sequence, keys: Iterable[BlockKey]) -> None:
        """``leader`` will compute these, unless somebody else does already."""
        for key in keys:
            self._leaders.setdefault(key, leader)

    def settle(self, key: BlockKey) -> None:
        """The block is computed, by whomever."""
        self._leaders.pop(key, None)

    def withdraw(self, leader: Sequence, keys: Iterable[BlockKey]) -> None:
        """``leader`` will not compute these."""
        for key in keys:
            if self._leaders.get(key) is leader:
                del self._leaders[key]

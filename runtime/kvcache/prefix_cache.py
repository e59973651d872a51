"""Which blocks already hold the keys and values of this prefix?"""

from collections.abc import Sequence

from runtime.kvcache.keys import BlockKey


class PrefixCache:
    """A one-to-one map between block keys and block ids. Holds no references of its own."""

    def __init__(self) -> None:
        self._block_ids: dict[BlockKey, int] = {}
        self._keys: dict[int, BlockKey] = {}

    def __len__(self) -> int:
        return len(self._block_ids)

    def match(self, keys: Sequence[BlockKey]) -> list[int]:
        """Blocks of the longest cached prefix of a chain of keys, in order."""
        block_ids = []
        for key in keys:
            block_id = self._block_ids.get(key)
            if block_id is None:
                break
            block_ids.append(block_id)
        return block_ids

    def find(self, key: BlockKey) -> int | None:
        """The block of one key."""
        return self._block_ids.get(key)

    def insert(self, key: BlockKey, block_id: int) -> bool:
        """Make a block findable; False, and no change, when the key is taken by an equal block."""
        if key in self._block_ids:
            return False
        self._block_ids[key] = block_id
        self._keys[block_id] = key
        return True

    def forget(self, block_id: int) -> None:
        """The block is about to hold something else."""
        del self._block_ids[self._keys.pop(block_id)]

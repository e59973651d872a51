"""Which blocks does each sequence hold, and which of them did it not have to compute?

A sequence only ever writes to blocks it holds alone and that no key leads to; shared blocks are
read-only. That is why a cached prefix is taken in whole blocks and stops short of the last token:
the block with the last token is always the sequence's own.
"""

from runtime.config import EngineConfig
from runtime.kvcache.block_pool import BlockPool
from runtime.kvcache.eviction import make_eviction_policy
from runtime.kvcache.keys import BlockKey, block_key, root_key
from runtime.kvcache.prefix_cache import PrefixCache
from runtime.sequence import Sequence


class KVCacheManager:
    """Gives blocks to sequences and takes them back; the only writer of block tables."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._prefix_cache = PrefixCache()
        self.pool = BlockPool(
            config.num_blocks,
            eviction=make_eviction_policy(config.eviction),
            on_evict=self._prefix_cache.forget,
        )

    def admit(self, sequence: Sequence) -> int | None:
        """Give a waiting sequence blocks for all its tokens; how many tokens were cached.

        None, and no change, when there are too few blocks now.
        """
        num_reusable = (sequence.num_tokens - 1) // self._config.block_size
        cached = self._prefix_cache.match(self._keys(sequence, num_reusable))
        num_idle = sum(self.pool.ref_count(block_id) == 0 for block_id in cached)
        num_new = self._num_blocks_for(sequence.num_tokens) - len(cached)
        if num_new > self.pool.num_available - num_idle:
            return None
        for block_id in cached:
            self.pool.acquire(block_id)
            sequence.block_table.append(block_id)
        for _ in range(num_new):
            sequence.block_table.append(self.pool.allocate())
        return len(cached) * self._config.block_size

    def grow(self, sequence: Sequence, *, num_drafts: int = 0) -> bool:
        """Make room for the sequence's tokens and drafts; False, and no change, without it."""
        num_blocks = self._num_blocks_for(sequence.num_tokens + num_drafts)
        num_new = num_blocks - len(sequence.block_table)
        if num_new > self.pool.num_available:
            return False
        for _ in range(num_new):
            sequence.block_table.append(self.pool.allocate())
        return True

    def num_spare_slots(self, sequence: Sequence) -> int:
        """Tokens that its blocks still have room for, beyond those it has."""
        return len(sequence.block_table) * self._config.block_size - sequence.num_tokens

    def commit(self, sequence: Sequence, *, num_tokens: int) -> None:
        """The next ``num_tokens`` tokens are computed: publish the blocks they filled."""
        first = sequence.num_computed_tokens // self._config.block_size
        sequence.num_computed_tokens += num_tokens
        if not self._config.prefix_cache:
            return
        stop = sequence.num_computed_tokens // self._config.block_size
        keys = self._keys(sequence, stop)
        for idx in range(first, stop):
            block_id = int(sequence.block_table.ids[idx])
            if self._prefix_cache.insert(keys[idx], block_id):
                self.pool.set_keyed(block_id)

    def release(self, sequence: Sequence) -> None:
        """Take back every block; those with a key stay findable until they are needed."""
        for block_id in reversed(sequence.block_table.take_all()):
            self.pool.release(block_id)

    def _num_blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self._config.block_size)

    def _keys(self, sequence: Sequence, num_blocks: int) -> list[BlockKey]:
        """Keys of the leading ``num_blocks`` full blocks, each hashed once per sequence."""
        if not self._config.prefix_cache:
            return []
        keys = sequence.block_keys
        size = self._config.block_size
        if not keys and num_blocks:
            salt = sequence.request.cache_salt
            root = root_key(model_sha256=self._config.model_sha256, salt=salt)
            keys.append(block_key(root, sequence.token_ids[:size]))
        for idx in range(len(keys), num_blocks):
            keys.append(block_key(keys[-1], sequence.token_ids[idx * size : (idx + 1) * size]))
        return keys[:num_blocks]

"""Which blocks does each sequence hold, and which of them did it not have to compute?

A sequence only ever writes to blocks it holds alone and that no key leads to; shared blocks are
read-only. That is why a cached prefix is taken in whole blocks and stops short of the last token:
the block with the last token is always the sequence's own while it is written.

Equal blocks are held once: a prefix that a running sequence computes just now can be waited for,
and when two have computed the same block all the same, the later one is given up for the earlier.
"""

from collections.abc import Sequence as Rows
from dataclasses import dataclass

from runtime.config import EngineConfig
from runtime.kvcache.block_pool import BlockPool
from runtime.kvcache.eviction import make_eviction_policy
from runtime.kvcache.in_flight import InFlightBlocks
from runtime.kvcache.keys import BlockKey, block_key, root_key
from runtime.kvcache.prefix_cache import PrefixCache
from runtime.sequence import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What a waiting sequence would find now; worthless after any other call to the manager."""

    cached_ids: list[int]  # blocks of its longest cached prefix
    num_new_blocks: int
    num_used_then: int  # blocks held by anybody once it is admitted
    fits_now: bool
    leader: Sequence | None  # who computes its next block just now
    num_awaited_blocks: int  # that the leader computes, one after another
    last_awaited_key: BlockKey | None


class KVCacheManager:
    """Gives blocks to sequences and takes them back; the only writer of block tables."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._block_size = config.block_size
        self._prefix_cache = PrefixCache()
        self.in_flight = InFlightBlocks()
        self.pool = BlockPool(
            config.num_blocks,
            eviction=make_eviction_policy(config.eviction),
            on_evict=self._prefix_cache.forget,
        )
        self.num_merged_blocks = 0  # ever: computed twice, kept once

    def probe(self, sequence: Sequence) -> Probe:
        """Changes nothing but the sequence's memory of its keys."""
        num_reusable = (sequence.num_tokens - 1) // self._block_size
        keys = self._keys(sequence, num_reusable)
        cached_ids = self._prefix_cache.match(keys)
        num_new = self._num_blocks_for(sequence.num_tokens) - len(cached_ids)
        num_idle = self.pool.count_idle(cached_ids)
        awaited = self.in_flight.run_of_one_leader(keys[len(cached_ids) :])
        return Probe(
            cached_ids=cached_ids,
            num_new_blocks=num_new,
            num_used_then=self.pool.num_used + num_idle + num_new,
            fits_now=num_new <= self.pool.num_available - num_idle,
            leader=self.in_flight.leader(awaited[0]) if awaited else None,
            num_awaited_blocks=len(awaited),
            last_awaited_key=awaited[-1] if awaited else None,
        )

    def admit(self, sequence: Sequence, probe: Probe) -> int:
        """Give a waiting sequence blocks for all its tokens; how many tokens were cached.

        From now on it is the leader of the blocks it will fill.
        Raises: InvariantBroken when there are too few; a probe says so before.
        """
        for block_id in probe.cached_ids:
            self.pool.acquire(block_id)
            sequence.block_table.append(block_id)
        for _ in range(probe.num_new_blocks):
            sequence.block_table.append(self.pool.allocate())
        num_cached = len(probe.cached_ids)
        keys = self._keys(sequence, sequence.num_tokens // self._block_size)
        self.in_flight.promise(sequence, keys[num_cached:])
        return num_cached * self._block_size

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
        return len(sequence.block_table) * self._block_size - sequence.num_tokens

    def frees_blocks(self, sequence: Sequence) -> bool:
        """Whether a block would become available if the sequence gave its own back."""
        return any(self.pool.ref_count(int(id_)) == 1 for id_ in sequence.block_table.ids[::-1])

    def commit(self, sequence: Sequence, *, num_tokens: int) -> None:
        """The next ``num_tokens`` tokens are computed: publish the blocks they filled."""
        first = sequence.num_computed_tokens // self._block_size
        sequence.num_computed_tokens += num_tokens
        stop = sequence.num_computed_tokens // self._block_size
        if stop == first or not self._config.prefix_cache:
            return
        keys = self._keys(sequence, stop)
        for idx in range(first, stop):
            self._publish(sequence, idx, keys[idx])

    def release(self, sequence: Sequence) -> None:
        """Take back every block; those with a key stay findable until they are needed."""
        first = sequence.num_computed_tokens // self._block_size
        self.in_flight.withdraw(sequence, sequence.block_keys[first:])
        for block_id in reversed(sequence.block_table.take_all()):
            self.pool.release(block_id)

    def touch(self, sequence: Sequence) -> int:
        """Evict what a waiting sequence would find later than what nobody asks for.

        Returns how many tokens it would find.
        """
        keys = self._keys(sequence, (sequence.num_tokens - 1) // self._block_size)
        cached_ids = self._prefix_cache.match(keys)
        for block_id in reversed(cached_ids):
            self.pool.touch(block_id)
        return len(cached_ids) * self._block_size

    def _publish(self, sequence: Sequence, idx: int, key: BlockKey) -> None:
        """1. The first block of its key becomes findable. 2. A later equal one is given up."""
        self.in_flight.settle(key)
        block_id = int(sequence.block_table.ids[idx])
        known_id = self._prefix_cache.find(key)
        if known_id is None:  # 1
            self._prefix_cache.insert(key, block_id)
            self.pool.set_keyed(block_id)
        elif known_id != block_id:  # 2
            self.pool.acquire(known_id)
            sequence.block_table.ids[idx] = known_id
            self.pool.release(block_id)
            self.num_merged_blocks += 1

    def _num_blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self._block_size)

    def _keys(self, sequence: Sequence, num_blocks: int) -> Rows[BlockKey]:
        """Keys of the leading ``num_blocks`` full blocks, each hashed once per sequence."""
        if not self._config.prefix_cache:
            return []
        keys = sequence.block_keys
        size = self._block_size
        if not keys and num_blocks:
            root = root_key(
                model_sha256=self._config.model_sha256,
                salt=sequence.request.cache_salt,
                in_bulk=not sequence.is_batch_invariant,
            )
            keys.append(block_key(root, sequence.token_ids[:size]))
        for idx in range(len(keys), num_blocks):
            keys.append(block_key(keys[-1], sequence.token_ids[idx * size : (idx + 1) * size]))
        return keys[:num_blocks]

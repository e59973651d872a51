"""Is every block free, cached or used, and does the pool refuse to lose count?"""

import pytest

from runtime.errors import InvalidConfig, InvariantBroken
from runtime.kvcache.block_pool import BlockPool
from runtime.kvcache.eviction import LruEviction, make_eviction_policy


def make_pool(num_blocks: int = 3) -> tuple[BlockPool, list[int]]:
    evicted: list[int] = []
    return BlockPool(num_blocks, eviction=LruEviction(), on_evict=evicted.append), evicted


def counts(pool: BlockPool) -> tuple[int, int, int]:
    return pool.num_free, pool.num_cached, pool.num_used


def test_a_block_without_a_key_is_free_once_released() -> None:
    pool, evicted = make_pool()
    block_id = pool.allocate()
    assert counts(pool) == (2, 0, 1)
    pool.release(block_id)
    assert counts(pool) == (3, 0, 0)
    assert evicted == []


def test_a_keyed_block_is_kept_until_no_free_one_is_left() -> None:
    pool, evicted = make_pool()
    keyed = pool.allocate()
    pool.set_keyed(keyed)
    pool.release(keyed)
    assert counts(pool) == (2, 1, 0)
    others = [pool.allocate(), pool.allocate()]
    assert keyed not in others
    assert evicted == []
    assert pool.allocate() == keyed
    assert evicted == [keyed]
    pool.release(keyed)
    assert counts(pool) == (1, 0, 2)


def test_the_least_recently_released_block_is_evicted_first() -> None:
    pool, evicted = make_pool()
    blocks = [pool.allocate() for _ in range(3)]
    for block_id in blocks:
        pool.set_keyed(block_id)
    for block_id in (blocks[1], blocks[0], blocks[2]):
        pool.release(block_id)
    pool.acquire(blocks[1])
    pool.release(blocks[1])
    assert [pool.allocate() for _ in range(3)] == [blocks[0], blocks[2], blocks[1]]
    assert evicted == [blocks[0], blocks[2], blocks[1]]


def test_a_shared_block_is_held_until_the_last_release() -> None:
    pool, _ = make_pool()
    block_id = pool.allocate()
    pool.set_keyed(block_id)
    pool.acquire(block_id)
    pool.release(block_id)
    assert counts(pool) == (2, 0, 1)
    pool.release(block_id)
    assert counts(pool) == (2, 1, 0)


def test_impossible_requests_raise() -> None:
    pool, _ = make_pool(1)
    for act in (pool.release, pool.acquire, pool.set_keyed):
        with pytest.raises(InvariantBroken):
            act(0)
    pool.allocate()
    with pytest.raises(InvariantBroken):
        pool.allocate()
    assert counts(pool) == (0, 0, 1)


def test_an_unknown_eviction_policy_is_refused() -> None:
    with pytest.raises(InvalidConfig):
        make_eviction_policy("random")

"""Who finds whose blocks, and how many tokens does that save?"""

from runtime import EngineConfig
from tests.runtime.harness import Harness, assert_same_output, request

SIZE = 4
PROMPT = tuple(range(1, 11))  # two whole blocks and a half


def make_harness(*, num_blocks: int = 40, prefix_cache: bool = True) -> Harness:
    config = EngineConfig(
        num_blocks=num_blocks,
        block_size=SIZE,
        max_batch_tokens=64,
        max_sequences=4,
        prefix_cache=prefix_cache,
    )
    return Harness(config)


def cached_tokens(
    harness: Harness, request_id: str, prompt: tuple[int, ...], *, salt: bytes = b""
) -> int:
    wanted = request(request_id, prompt, salt=salt, max_tokens=1)
    harness.add(wanted)
    outcome = harness.drain()[request_id]
    assert_same_output(outcome, harness.expected(wanted))
    assert outcome.timing is not None
    return outcome.timing.cached_tokens


def test_whole_blocks_of_a_common_prefix_are_found() -> None:
    harness = make_harness()
    assert cached_tokens(harness, "cold", PROMPT) == 0
    assert cached_tokens(harness, "same", PROMPT) == 8
    assert cached_tokens(harness, "longer", (*PROMPT, 3, 3, 3)) == 8
    assert cached_tokens(harness, "shorter", PROMPT[:6]) == 4
    assert cached_tokens(harness, "forked", (*PROMPT[:7], 9, 9, 9)) == 4
    assert cached_tokens(harness, "other", (2, *PROMPT[1:])) == 0


def test_another_salt_never_finds_them() -> None:
    harness = make_harness()
    cached_tokens(harness, "first", PROMPT, salt=b"one")
    assert cached_tokens(harness, "other", PROMPT, salt=b"two") == 0
    assert cached_tokens(harness, "none", PROMPT) == 0
    assert cached_tokens(harness, "same", PROMPT, salt=b"one") == 8


def test_a_prompt_that_is_cached_whole_computes_its_last_block_anew() -> None:
    harness = make_harness()
    cached_tokens(harness, "cold", PROMPT[:8])
    harness.runner.plans.clear()
    assert cached_tokens(harness, "warm", PROMPT[:8]) == 4
    assert harness.runner.plans[0].positions.tolist() == [4, 5, 6, 7]
    assert cached_tokens(harness, "warmer", (*PROMPT[:8], 1)) == 8


def test_what_was_generated_is_found_too() -> None:
    harness = make_harness()
    harness.add(request("turn1", PROMPT, max_tokens=7))
    output = harness.drain()["turn1"].token_ids
    # The last token was sampled but never computed: 16 of 17 tokens are in the cache.
    assert cached_tokens(harness, "turn2", (*PROMPT, *output, 5, 5)) == 16


def test_nothing_is_found_with_the_cache_off() -> None:
    harness = make_harness(prefix_cache=False)
    cached_tokens(harness, "cold", PROMPT)
    assert cached_tokens(harness, "same", PROMPT) == 0
    assert harness.log.stats[-1].num_cached_blocks == 0


def test_equal_prompts_that_arrive_at_once_are_computed_once_and_share_their_blocks() -> None:
    harness = make_harness()
    harness.add(request("a", PROMPT, max_tokens=20))
    harness.add(request("b", PROMPT, max_tokens=20))
    harness.step()
    assert harness.log.stats[-1].num_used_blocks == 3  # b waits for what a computes
    harness.add(request("c", PROMPT, max_tokens=20))
    harness.step()
    assert harness.log.stats[-1].num_used_blocks == 3 + 2 * 1  # two full ones are all three's
    harness.drain()


def test_a_chain_is_evicted_tail_first() -> None:
    harness = make_harness(num_blocks=5)
    cached_tokens(harness, "cold", (*PROMPT[:8], 9))  # two keyed blocks
    cached_tokens(harness, "big", tuple([7] * 13))  # needs four: one must go
    assert cached_tokens(harness, "again", (*PROMPT[:8], 9)) == 4

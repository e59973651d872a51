"""Are bad requests refused by name, and illegal states impossible?"""

import math
from typing import Any

import pytest

from runtime import (
    EngineConfig,
    InvalidConfig,
    InvalidPrompt,
    InvalidSampling,
    InvariantBroken,
    SamplingParams,
)
from runtime.sampling import MAX_STOP_CHARS
from runtime.sequence import BlockTable, Sequence
from tests.runtime.harness import request


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("max_tokens", 0),
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("top_p", 0.0),
        ("top_p", 1.01),
        ("top_p", math.nan),
        ("top_k", -1),
        ("seed", 2**63),
        ("seed", -(2**63) - 1),
        ("stop", ("",)),
        ("stop", ("x" * (MAX_STOP_CHARS + 1),)),
        ("stop", ("x",) * 17),
        ("stop_token_ids", frozenset({-1})),
        ("stop_token_ids", frozenset(range(65))),
    ],
)
def test_a_sampling_value_out_of_range_is_named(param: str, value: Any) -> None:
    with pytest.raises(InvalidSampling) as caught:
        SamplingParams(**{"max_tokens": 1, param: value})
    assert (caught.value.param, caught.value.code) == (param, "invalid_value")


def test_the_bounds_themselves_are_allowed() -> None:
    SamplingParams(max_tokens=1, temperature=0, top_p=1, top_k=0, seed=-(2**63))
    SamplingParams(max_tokens=1, temperature=2, top_p=1e-9, seed=2**63 - 1, stop=("x",) * 16)


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(InvalidPrompt):
        request("r", ())


def test_no_text_of_the_client_is_in_a_repr() -> None:
    secret = request("r", (31337, 31338), salt=b"pepper")
    stop = SamplingParams(max_tokens=1, stop=("canary",))
    sequence = Sequence(secret, rng_seed=1, max_output_tokens=1)
    shown = f"{secret!r} {stop!r} {sequence!r}"
    assert not any(word in shown for word in ("31337", "31338", "pepper", "canary"))


def sequence(prompt: tuple[int, ...] = (1, 2, 3)) -> Sequence:
    return Sequence(request("r", prompt), rng_seed=1, max_output_tokens=4)


def test_a_waiting_sequence_cannot_be_preempted() -> None:
    with pytest.raises(InvariantBroken):
        sequence().preempt()


def test_a_finished_sequence_stays_finished() -> None:
    finished = sequence()
    finished.finish()
    with pytest.raises(InvariantBroken):
        finished.start(num_cached_tokens=0)
    with pytest.raises(InvariantBroken):
        finished.finish()


def test_cached_tokens_are_counted_at_the_first_start_only() -> None:
    twice = sequence()
    twice.start(num_cached_tokens=1)
    twice.preempt()
    twice.start(num_cached_tokens=2)
    assert twice.num_computed_tokens == 2
    assert twice.timing(finished_ns=9).cached_tokens == 1


def test_a_block_table_keeps_order_while_it_grows() -> None:
    table = BlockTable()
    for block_id in range(100, 150):
        table.append(block_id)
    assert table.ids.tolist() == list(range(100, 150))
    assert table.take_all() == list(range(100, 150))
    assert len(table) == 0


def test_a_bad_engine_config_names_every_problem() -> None:
    with pytest.raises(InvalidConfig) as caught:
        EngineConfig(
            num_blocks=0,
            block_size=0,
            max_batch_tokens=4,
            max_sequences=4,
            max_waiting=0,
            eviction="x",
        )
    message = str(caught.value)
    for name in ("num_blocks", "block_size", "max_batch_tokens", "max_waiting", "eviction"):
        assert name in message

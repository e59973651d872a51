"""Does the prediction of the first token follow what was seen, and the breaker what failed?"""

import pytest

from gateway.worker_load import (
    FAILURES_TO_OPEN,
    FIRST_PAUSE_NS,
    FORGET_NS,
    LAST_PAUSE_NS,
    OPEN_TOKENS,
    OVERHEAD_TOKENS,
    Breaker,
    Ticket,
    WorkerLoad,
    expected_ttft_ns,
)

MS = 1_000_000


def seen(ms_per_token: float) -> WorkerLoad:
    load = WorkerLoad()
    load.learn(ms_per_token * MS, 0)
    return load


def quickest(*loads: WorkerLoad, tokens: int = 100, now_ns: int = 0) -> int:
    expected = expected_ttft_ns(loads, tokens=tokens, now_ns=now_ns)
    return expected.index(min(expected))


def test_the_quicker_worker_is_first_until_its_queue_is_longer() -> None:
    slow, quick = seen(3), seen(1)
    assert quickest(slow, quick) == 1
    tickets = [quick.open(400, 0)]
    assert quickest(slow, quick) == 0
    tickets[0].first_token(MS)
    assert quickest(slow, quick) == 1  # it still streams, but nobody waits behind its prompt
    tickets += [quick.open(0, 0) for _ in range(20)]
    assert quickest(slow, quick) == 0
    for ticket in tickets:
        ticket.close()
        ticket.close()
    assert (quick.num_open, quick.waiting_tokens) == (0, 0)


def test_what_is_expected_is_what_was_observed() -> None:
    load = WorkerLoad()
    load.open(36, 0).first_token(200 * MS)  # alone: 100 tokens' work
    work = OVERHEAD_TOKENS + 10 + OPEN_TOKENS
    assert expected_ttft_ns([load], tokens=10, now_ns=200 * MS) == [pytest.approx(2 * MS * work)]


def test_a_worker_nobody_knows_is_tried() -> None:
    known, new = seen(1), WorkerLoad()
    known.open(10, 0)
    assert quickest(known, new) == 1


def test_a_slow_moment_is_forgotten() -> None:
    once_slow, usual = seen(100), seen(1)
    usual.open(1000, 0)
    assert quickest(once_slow, usual) == 1
    assert quickest(once_slow, usual, now_ns=20 * FORGET_NS) == 0


def test_an_observation_weighs_a_fifth() -> None:
    load = seen(1)
    load.learn(6 * MS, 0)
    assert load.ns_per_token == pytest.approx(2 * MS)


def opened() -> Breaker:
    breaker = Breaker()
    for _ in range(FAILURES_TO_OPEN):
        breaker.failed(0, ticket())
    return breaker


def ticket() -> Ticket:
    return WorkerLoad().open(1, 0)


def begun(breaker: Breaker) -> Ticket:
    """Of a request that goes there."""
    breaker.begin(sent := ticket())
    return sent


def test_a_worker_that_fails_is_left_alone_and_then_tried_by_one() -> None:
    breaker = Breaker()
    for _ in range(FAILURES_TO_OPEN - 1):
        breaker.failed(0, ticket())
    assert breaker.allows(0)
    breaker.failed(0, ticket())
    assert not breaker.allows(FIRST_PAUSE_NS - 1)
    assert breaker.allows(FIRST_PAUSE_NS)
    trial = begun(breaker)
    assert not breaker.allows(FIRST_PAUSE_NS)  # one at a time
    breaker.left(trial)
    assert breaker.allows(FIRST_PAUSE_NS)
    begun(breaker)
    breaker.succeeded()
    assert breaker.allows(FIRST_PAUSE_NS)
    breaker.failed(0, ticket())
    assert breaker.allows(0)  # failures are counted anew


def test_each_failed_try_doubles_the_pause_up_to_a_bound() -> None:
    breaker = opened()
    breaker.failed(0, begun(breaker))
    assert not breaker.allows(2 * FIRST_PAUSE_NS - 1)
    assert breaker.allows(2 * FIRST_PAUSE_NS)
    for _ in range(10):
        breaker.failed(0, begun(breaker))
    assert not breaker.allows(LAST_PAUSE_NS - 1)
    assert breaker.allows(LAST_PAUSE_NS)


def test_requests_of_before_say_nothing_of_the_try() -> None:
    breaker, old = Breaker(), [ticket() for _ in range(8)]
    for each in old:
        breaker.begin(each)
    for each in old:
        breaker.failed(0, each)
    assert breaker.allows(FIRST_PAUSE_NS)  # one hiccup, however many met it
    trial = begun(breaker)
    breaker.left(old[0])
    breaker.failed(FIRST_PAUSE_NS, old[1])
    assert not breaker.allows(2 * FIRST_PAUSE_NS)
    breaker.left(trial)
    assert breaker.allows(FIRST_PAUSE_NS)

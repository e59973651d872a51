"""Are drafts what the sequence itself suggests, and only made while they pay?"""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import runtime.ngram
from runtime import speculation
from runtime.grammar import GrammarState
from runtime.ngram import MAX_INDEXED_TOKENS, NgramProposer
from runtime.sequence import Sequence as EngineSequence
from runtime.speculation import (
    DEFAULT_ROW_COST,
    DraftWanted,
    Pace,
    RowCosts,
    Speculator,
    num_right,
)
from tests.runtime.harness import request


def naive(token_ids: Sequence[int], max_drafts: int, *, window: int) -> tuple[int, ...]:
    """By looking at every earlier place, the latest first."""
    known = list(token_ids)
    for length in (3, 2, 1):
        for position in range(len(known) - 1, max(0, len(known) - window - 1, length - 1), -1):
            if position >= length and known[position - length : position] == known[-length:]:
                drafts = list(known)
                while len(drafts) < len(known) + max_drafts:
                    drafts.append(drafts[position + len(drafts) - len(known)])
                return tuple(drafts[len(known) :])
    return ()


def propose(proposer: NgramProposer, token_ids: Sequence[int], max_drafts: int) -> tuple[int, ...]:
    wanted = DraftWanted(request_id="r", token_ids=token_ids, max_drafts=max_drafts)
    return proposer.propose([wanted])[0]


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=60),
    st.lists(st.tuples(st.integers(1, 8), st.integers(1, 6)), min_size=1, max_size=6),
    st.sampled_from([4, 9, MAX_INDEXED_TOKENS]),
)
def test_drafts_are_what_followed_last_time(
    token_ids: list[int], looks: list[tuple[int, int]], window: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime.ngram, "MAX_INDEXED_TOKENS", window)
        proposer = NgramProposer()
        stop = 1
        for num_new, max_drafts in looks:
            known = token_ids[:stop]
            assert propose(proposer, known, max_drafts) == naive(known, max_drafts, window=window)
            stop += num_new
        index = proposer._indexes["r"]
        assert all(len(table) <= window for table in index._next_at)


def test_memory_is_bounded_and_given_back() -> None:
    proposer = NgramProposer()
    token_ids = list(range(1, 3 * MAX_INDEXED_TOKENS))
    propose(proposer, token_ids[:9], 1)
    propose(proposer, token_ids, 1)
    token_ids += range(10**5, 10**5 + 50)
    propose(proposer, token_ids, 1)
    index = proposer._indexes["r"]
    assert all(len(table) <= MAX_INDEXED_TOKENS for table in index._next_at)
    proposer.forget("r")
    proposer.forget("never asked about")
    assert not proposer._indexes


def run_pace(
    accepts: Sequence[bool], num_tokens: int, *, row_cost: float = 0.03
) -> tuple[int, int]:
    """(drafted, accepted) of one output whose n-th step would accept all or nothing."""
    pace, drafted, accepted, length, step = Pace(), 0, 0, 0, 0
    while length < num_tokens:
        num_drafts = pace.max_drafts(length, bound=7)
        right = num_drafts if accepts[step % len(accepts)] else 0
        drafted, accepted, step = drafted + num_drafts, accepted + right, step + 1
        length += 1 + right
        if num_drafts:
            pace.observe(
                num_drafts=num_drafts,
                num_accepted=right,
                num_output_tokens=length,
                row_cost=row_cost,
            )
    return drafted, accepted


def test_drafts_that_are_always_wrong_nearly_stop() -> None:
    drafted, _ = run_pace([False], 1000)
    assert 0 < drafted * 0.03 < 1000 * 0.03  # rows at 3 % of a step each: under 3 % in all
    assert run_pace([False], 50)[0] * 0.03 < 50 * 0.03


def test_drafts_that_are_right_grow_to_the_bound() -> None:
    drafted, accepted = run_pace([True], 1000)
    assert drafted == accepted > 850


def test_a_sequence_that_becomes_predictable_is_found_out() -> None:
    _, accepted = run_pace([False] * 300 + [True] * 500, 900)
    assert accepted > 200


def test_dear_drafts_must_be_right_more_often() -> None:
    accepts = [True] + [False] * 5
    _, cheap = run_pace(accepts, 2000, row_cost=0.02)
    _, dear = run_pace(accepts, 2000, row_cost=0.4)
    assert dear < cheap / 2


def test_the_cost_of_a_draft_is_measured() -> None:
    costs = RowCosts(8)
    assert costs.of_draft(num_sequences=1, num_drafts=3) == DEFAULT_ROW_COST
    for _ in range(200):
        costs.observe(1, 0.010)
        costs.observe(2, 0.010)
        costs.observe(4, 0.013)
        costs.observe(9, 1.0)  # no drafts are made in such a step
    assert costs.of_draft(num_sequences=1, num_drafts=3) == pytest.approx(0.1)
    assert costs.of_draft(num_sequences=2, num_drafts=2) == pytest.approx(0.3)
    assert costs.of_draft(num_sequences=1, num_drafts=1) == 0
    costs.observe(4, 10.0)  # a stall
    assert costs.of_draft(num_sequences=1, num_drafts=3) < 0.2
    for _ in range(100):
        costs.observe(4, 0.020)  # the machine has changed
    assert costs.of_draft(num_sequences=1, num_drafts=3) == pytest.approx(1 / 3, abs=0.01)


def test_steps_with_prompts_tell_nothing_of_drafts() -> None:
    speculator = Speculator(Parrot(), max_drafts=7, max_rows=8)
    for _ in range(50):
        speculator.observe([], num_sequences=1, step_s=1.0, has_prompts=False)
        speculator.observe([], num_sequences=2, step_s=9.0, has_prompts=True)
    assert speculator._costs.of_draft(num_sequences=1, num_drafts=1) == DEFAULT_ROW_COST


class Parrot:
    """Proposes the request's number, as often as it may."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.forgotten: list[str] = []

    def propose(self, wanted: Sequence[DraftWanted]) -> list[tuple[int, ...]]:
        self.asked += [one.request_id for one in wanted]
        return [(int(one.request_id),) * one.max_drafts for one in wanted]

    def forget(self, request_id: str) -> None:
        self.forgotten.append(request_id)


@dataclass(kw_only=True)
class Wanted:
    sequence: EngineSequence
    grammar: GrammarState | None = None
    is_dear: bool = False

    @property
    def drafts(self) -> tuple[int, ...]:
        return self.sequence.draft_token_ids


def sequences(count: int) -> list[Wanted]:
    return [
        Wanted(sequence=EngineSequence(request(str(idx), (1, 2)), rng_seed=0, max_output_tokens=9))
        for idx in range(count)
    ]


@pytest.mark.parametrize(("count", "want"), [(0, 0), (1, 2), (2, 2), (3, 1), (4, 1), (5, 0)])
def test_the_rows_of_a_step_are_bounded(count: int, want: int) -> None:
    parrot = Parrot()
    speculator = Speculator(parrot, max_drafts=7, max_rows=8)
    decoding = sequences(count)
    speculator.propose(decoding)
    assert [len(one.drafts) for one in decoding] == [want] * count
    assert all(set(one.drafts) <= {idx} for idx, one in enumerate(decoding))
    assert bool(parrot.asked) == bool(want)


def test_a_finished_sequence_is_forgotten() -> None:
    parrot = Parrot()
    speculator = Speculator(parrot, max_drafts=7, max_rows=8)
    (one,) = sequences(1)
    speculator.propose([one])
    drafted = [speculation.Drafted(sequence=one.sequence, num_drafts=2, num_accepted=2)]
    for _ in range(2):
        speculator.observe(drafted, num_sequences=1, step_s=1.0, has_prompts=False)
        speculator.forget("0")
    assert set(parrot.forgotten) == {"0"}
    assert not speculator._paces


class FakeGrammar:
    def __init__(self, forced: tuple[int, ...], num_valid: int) -> None:
        self._forced, self._num_valid = forced, num_valid

    def num_valid(self, drafts: Sequence[int]) -> int:
        return min(self._num_valid, len(drafts))

    def forced(self) -> Sequence[int]:
        return self._forced

    def fill_masks(self, masks: object, drafts: Sequence[int]) -> None:
        raise NotImplementedError

    def advance(self, token_id: int) -> bool:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("grammar", "want"),
    [
        (FakeGrammar((), 7), (0, 0)),
        (FakeGrammar((), 1), (0,)),
        (FakeGrammar((), 0), ()),
        (FakeGrammar((5, 6), 0), (5, 6)),
        (FakeGrammar((5,) * 20, 0), (5,) * 7),
    ],
)
def test_a_grammar_trims_drafts_and_gives_those_it_forces(
    grammar: FakeGrammar, want: tuple[int, ...]
) -> None:
    (one,) = sequences(1)
    one.grammar = grammar
    Speculator(Parrot(), max_drafts=7, max_rows=8).propose([one])
    assert one.drafts == want


def test_dear_masks_are_not_made_dearer() -> None:
    dear, plain = sequences(2)
    dear.grammar, dear.is_dear = FakeGrammar((5, 6), 7), True
    parrot = Parrot()
    Speculator(parrot, max_drafts=7, max_rows=16).propose([dear, plain])
    assert (dear.drafts, plain.drafts) == ((), (1, 1))
    assert parrot.asked == ["1"]


def test_what_is_right_is_a_prefix() -> None:
    assert num_right((1, 2, 3), [1, 2, 3, 4]) == 3
    assert num_right((1, 2, 3), [1, 9, 3, 4]) == 1
    assert num_right((), [4]) == 0

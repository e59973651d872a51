"""Which tokens are worth guessing?  Drafts that the next step computes along and then checks.

Speculation here is lossless: a draft is kept where it equals the token that would have been chosen
without it, and that choice depends on seed, step and logits alone (``runtime.sampler``). So the
only question is speed. A step of few rows costs little more than one of a single row, because the
weights are read once; beyond some number of rows each costs its full share. Drafts are therefore
made while the rows of a step stay below that number, and for each sequence only as long as enough
of them are right for what they were measured to cost.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Rows
from dataclasses import dataclass, field
from typing import Protocol

from runtime.grammar import GrammarState
from runtime.sequence import Sequence

DEFAULT_ROW_COST = 0.05  # tokens a draft, until steps with and without have been measured
_COST_WEIGHT = 0.1  # of the newest step in the running average of its kind
_MAX_STALL = 2.0  # a step that took longer than so many of its kind tells of something else
_FIRST_DRAFT_TOKENS = 2
_WEIGHT = 0.125  # of the newest step in the running average
_FIRST_GAIN = 0.3  # tokens a step; some right guesses are expected until the first ones are known
_RESUMED_GAIN = 0.05
_FIRST_PAUSE_TOKENS = 16
_LAST_PAUSE_TOKENS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftWanted:
    """One sequence to guess at: at most ``max_drafts`` tokens that follow ``token_ids``.

    ``token_ids`` only grows between two calls for the same ``request_id``, and is not to be kept.
    """

    request_id: str
    token_ids: Rows[int] = field(repr=False)
    max_drafts: int


class Proposer(Protocol):
    """Guesses what comes next; right guesses save steps, wrong ones change nothing."""

    def propose(self, wanted: Rows[DraftWanted]) -> list[tuple[int, ...]]:
        """Drafts of each, none where there is no good guess."""

    def forget(self, request_id: str) -> None:
        """The sequence has ended; it may never have been asked about."""


class Pace:
    """How many drafts one sequence gets, from how its last ones did."""

    __slots__ = ("_gain", "_length", "_pause_tokens", "_resumes_at")

    def __init__(self) -> None:
        self._gain = _FIRST_GAIN  # running average of accepted tokens less the cost of drafts
        self._length = _FIRST_DRAFT_TOKENS
        self._pause_tokens = _FIRST_PAUSE_TOKENS
        self._resumes_at = 0

    def max_drafts(self, num_output_tokens: int, *, bound: int) -> int:
        return min(self._length, bound) if num_output_tokens >= self._resumes_at else 0

    def observe(
        self, *, num_drafts: int, num_accepted: int, num_output_tokens: int, row_cost: float
    ) -> None:
        """``num_output_tokens`` is the length of the output after this step, ``row_cost`` as
        ``RowCosts`` has it.
        """
        gain = num_accepted - row_cost * num_drafts
        self._gain += _WEIGHT * (gain - self._gain)
        all_right = num_accepted == num_drafts
        self._length = 2 * self._length + 1 if all_right else _FIRST_DRAFT_TOKENS
        if num_accepted:
            self._pause_tokens = _FIRST_PAUSE_TOKENS
        if self._gain >= 0:
            return
        self._gain = _RESUMED_GAIN  # after the pause a few tries decide
        self._resumes_at = num_output_tokens + self._pause_tokens
        self._pause_tokens = min(2 * self._pause_tokens, _LAST_PAUSE_TOKENS)


class RowCosts:
    """What a draft costs, in tokens that could have been made in the time; from measured steps."""

    __slots__ = ("_step_s",)

    def __init__(self, max_rows: int) -> None:
        self._step_s = [0.0] * (max_rows + 1)  # by the rows of the step, 0 where not yet seen

    def observe(self, num_rows: int, step_s: float) -> None:
        """A step of so many rows, none of them of a prompt, took so long."""
        if num_rows < len(self._step_s):
            usual_s = self._step_s[num_rows] or step_s
            step_s = min(step_s, _MAX_STALL * usual_s)
            self._step_s[num_rows] = usual_s + _COST_WEIGHT * (step_s - usual_s)

    def of_draft(self, *, num_sequences: int, num_drafts: int) -> float:
        """Of one of ``num_drafts`` in a step of ``num_sequences``."""
        num_rows = num_sequences + num_drafts
        if num_drafts < 1 or num_rows >= len(self._step_s):
            return DEFAULT_ROW_COST
        with_s, without_s = self._step_s[num_rows], self._step_s[num_sequences]
        if not with_s or not without_s:
            return DEFAULT_ROW_COST
        return max(0.0, num_sequences * (with_s / without_s - 1) / num_drafts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafted:
    """How the drafts of one sequence did in a step."""

    sequence: Sequence
    num_drafts: int
    num_accepted: int


class Draftable(Protocol):
    """A sequence that decodes next, and the grammar its output follows, if any."""

    @property
    def sequence(self) -> Sequence: ...
    @property
    def grammar(self) -> GrammarState | None: ...
    @property
    def is_dear(self) -> bool:
        """Whether a mask, or to know what must follow, takes long: then it is not guessed at."""


class Speculator:
    """Gives the sequences of the next step their drafts; one per engine."""

    def __init__(self, proposer: Proposer, *, max_drafts: int, max_rows: int) -> None:
        self._proposer = proposer
        self._max_drafts = max_drafts
        self._max_rows = max_rows
        self._paces: dict[str, Pace] = {}
        self._costs = RowCosts(max_rows)

    def propose(self, decoding: Rows[Draftable]) -> None:
        """Set the ``draft_token_ids`` of those that shall have some.

        Raises: whatever a proposer's model does.
        """
        bound = min(self._max_drafts, self._max_rows // max(1, len(decoding)) - 1)
        if bound < 1:
            return
        asked: list[Draftable] = []
        wanted: list[DraftWanted] = []
        for one in decoding:
            if one.is_dear:
                continue
            sequence = one.sequence
            if one.grammar is not None and (forced := one.grammar.forced()):
                sequence.draft_token_ids = tuple(forced[:bound])
                continue
            request_id = sequence.request.request_id
            pace = self._paces.setdefault(request_id, Pace())
            num_drafts = pace.max_drafts(sequence.num_output_tokens, bound=bound)
            if num_drafts:
                asked.append(one)
                wanted.append(
                    DraftWanted(
                        request_id=request_id, token_ids=sequence.token_ids, max_drafts=num_drafts
                    )
                )
        if wanted:
            for one, drafts in zip(asked, self._proposer.propose(wanted), strict=True):
                num_valid = len(drafts) if one.grammar is None else one.grammar.num_valid(drafts)
                one.sequence.draft_token_ids = drafts[:num_valid]

    def observe(
        self, drafted: Rows[Drafted], *, num_sequences: int, step_s: float, has_prompts: bool
    ) -> None:
        """A step of ``num_sequences`` has run; ``drafted`` names those of them with drafts."""
        if not self._max_drafts:
            return
        num_drafts = sum(one.num_drafts for one in drafted)
        if not has_prompts:
            self._costs.observe(num_sequences + num_drafts, step_s)
        if not drafted:
            return
        row_cost = self._costs.of_draft(num_sequences=num_sequences, num_drafts=num_drafts)
        for one in drafted:
            pace = self._paces.get(one.sequence.request.request_id)
            if pace is not None:
                pace.observe(
                    num_drafts=one.num_drafts,
                    num_accepted=one.num_accepted,
                    num_output_tokens=one.sequence.num_output_tokens,
                    row_cost=row_cost,
                )

    def forget(self, request_id: str) -> None:
        self._paces.pop(request_id, None)
        self._proposer.forget(request_id)


def num_right(drafts: Rows[int], chosen: Iterable[int]) -> int:
    """How many leading drafts equal what was chosen in their places."""
    count = 0
    for draft, token_id in zip(drafts, chosen, strict=False):
        if draft != token_id:
            break
        count += 1
    return count

"""What does the engine hold of one request, and what do its new tokens make of it?"""

from collections.abc import Sequence as Rows
from dataclasses import dataclass, field
from typing import Final

from runtime.grammar import GrammarState
from runtime.logits import TokenHistory
from runtime.output import OutputText
from runtime.sampler import TokenLogprobs
from runtime.sequence import FinishReason, Sequence, SequenceTiming

_DEAR_NS: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """What one step added to one request.

    ``text`` may be empty, when it ends inside a character or in what may become a stop string;
    joined over all deltas it is the output. ``logprobs`` has one entry for each token, when they
    were asked for. ``timing`` comes with ``finish_reason``, last.
    """

    request_id: str
    token_ids: tuple[int, ...] = field(repr=False)
    text: str = field(repr=False)
    finish_reason: FinishReason | None = None
    timing: SequenceTiming | None = None
    logprobs: tuple[TokenLogprobs, ...] = field(default=(), repr=False)


@dataclass(slots=True, kw_only=True)
class Advance:
    """A delta whose text may not be made yet, so that this can be done while the next step runs.

    ``delta`` is called once for each advance of a request and in their order, by one thread at a
    time; it need not be the engine's.
    """

    request_id: str
    token_ids: tuple[int, ...] = field(repr=False)
    finish_reason: FinishReason | None = None
    timing: SequenceTiming | None = None
    logprobs: tuple[TokenLogprobs, ...] = field(default=(), repr=False)
    text: str = field(default="", repr=False)
    output: OutputText | None = field(default=None, repr=False)  # writes the text, if not yet done

    def delta(self) -> Delta:
        text = self.text
        if self.output is not None:
            text = self.output.write(self.token_ids, self.finish_reason).text
        return Delta(
            request_id=self.request_id,
            token_ids=self.token_ids,
            text=text,
            finish_reason=self.finish_reason,
            timing=self.timing,
            logprobs=self.logprobs,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What of the chosen tokens became output; ``output`` as in Advance."""

    token_ids: tuple[int, ...]
    reason: FinishReason | None
    text: str = ""
    output: OutputText | None = None


@dataclass(slots=True, kw_only=True)
class Live:
    """One request in the engine."""

    sequence: Sequence
    output: OutputText
    grammar: GrammarState | None
    history: TokenHistory | None  # for penalties
    mask_ns: int = 0  # what each of the last masks of its grammar took
    masked_at: int | None = None  # and in which step that was

    @property
    def is_dear(self) -> bool:
        """Whether its masks take so long that cheap ones come first, and that it gets no drafts."""
        return self.mask_ns > _DEAR_NS

    def keep(self, chosen: Rows[int]) -> Kept:
        """Take the tokens that were chosen for this output, up to where it ends.

        Raises: runtime.errors.GrammarFailed.
        """
        sequence = self.sequence
        room = sequence.max_output_tokens - sequence.num_output_tokens
        num_tokens, reason = self.output.end_of(chosen, room=room)
        if self.grammar is not None:
            num_tokens, reason = self._follow(self.grammar, chosen[:num_tokens], reason)
        token_ids, text, output = tuple(chosen[:num_tokens]), "", self.output
        if output.has_stops:
            written = output.write(token_ids, reason)
            token_ids, text, reason = token_ids[: written.num_tokens], written.text, written.reason
        if self.history is not None:
            for token_id in token_ids:
                self.history.push(token_id)
        return Kept(
            token_ids=token_ids,
            reason=reason,
            text=text,
            output=None if output.has_stops else output,
        )

    def _follow(
        self, grammar: GrammarState, token_ids: Rows[int], reason: FinishReason | None
    ) -> tuple[int, FinishReason | None]:
        """The grammar's own end comes first, if it comes."""
        for num_tokens, token_id in enumerate(token_ids, start=1):
            if token_id in self.output.ending_token_ids:
                break
            if grammar.advance(token_id):
                return num_tokens, "stop"
        return len(token_ids), reason

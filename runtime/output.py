"""What text do the new tokens of one request add, and do they end it?

Most outputs end by a token or by their length, which the ids alone tell: their text can be made
later, and on another thread. Only where a request has stop strings the text decides.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Protocol

from runtime.sampling import SamplingParams
from runtime.sequence import FinishReason
from runtime.stops import StopChecker


class Detokenizer(Protocol):
    """Token ids of one sequence in, whole characters out."""

    def push(self, token_id: int) -> str: ...

    def flush(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """``num_tokens`` of those offered are part of the output, and this is their text."""

    num_tokens: int
    text: str = field(repr=False)
    reason: FinishReason | None


class OutputText:
    """One request's output from token ids to text that may be sent.

    A token that ends the output adds no text of its own.
    """

    __slots__ = ("_detokenizer", "_stops", "ending_token_ids", "has_stops")

    def __init__(
        self, sampling: SamplingParams, *, detokenizer: Detokenizer, eos_token_ids: Set[int]
    ) -> None:
        eos = frozenset() if sampling.ignore_eos else frozenset(eos_token_ids)
        self.ending_token_ids = eos | sampling.stop_token_ids
        self.has_stops = bool(sampling.stop)
        self._detokenizer = detokenizer
        self._stops = StopChecker(sampling.stop)

    def end_of(self, token_ids: Sequence[int], *, room: int) -> tuple[int, FinishReason | None]:
        """How many of the new tokens belong to the output, and why it ends there if it does.

        By the ids alone; ``room`` is how many tokens the output may still have.
        """
        for idx, token_id in enumerate(token_ids[:room]):
            if token_id in self.ending_token_ids:
                return idx + 1, "stop"
        return (room, "length") if len(token_ids) >= room else (len(token_ids), None)

    def write(self, token_ids: Sequence[int], reason: FinishReason | None) -> Written:
        """The text of new tokens; with ``reason`` they are the last, unless a stop string is
        complete before. Called once for each token, in order.
        """
        if not self.has_stops:
            text = "".join([self._piece(token_id) for token_id in token_ids])
            if reason is not None:
                text += self._detokenizer.flush()
            return Written(num_tokens=len(token_ids), text=text, reason=reason)
        text = ""
        for num_tokens, token_id in enumerate(token_ids, start=1):
            text += self._stops.push(self._piece(token_id))
            if self._stops.is_stopped:
                return Written(num_tokens=num_tokens, text=text, reason="stop")
        if reason is not None:
            text += self._stops.push(self._detokenizer.flush()) + self._stops.flush()
            reason = "stop" if self._stops.is_stopped else reason
        return Written(num_tokens=len(token_ids), text=text, reason=reason)

    def _piece(self, token_id: int) -> str:
        return "" if token_id in self.ending_token_ids else self._detokenizer.push(token_id)

"""What text does a sampled token add, and does it end the request?"""

from collections.abc import Set
from typing import Protocol

from runtime.sampling import SamplingParams
from runtime.sequence import FinishReason
from runtime.stops import StopChecker


class Detokenizer(Protocol):
    """Token ids of one sequence in, whole characters out."""

    def push(self, token_id: int) -> str: ...

    def flush(self) -> str: ...


class OutputText:
    """One request's output from token ids to text that may be sent.

    A token that ends the output adds no text of its own.
    """

    __slots__ = ("_detokenizer", "_ending_token_ids", "_stops")

    def __init__(
        self, sampling: SamplingParams, *, detokenizer: Detokenizer, eos_token_ids: Set[int]
    ) -> None:
        eos = frozenset() if sampling.ignore_eos else frozenset(eos_token_ids)
        self._ending_token_ids = eos | sampling.stop_token_ids
        self._detokenizer = detokenizer
        self._stops = StopChecker(sampling.stop)

    def push(self, token_id: int, *, is_last: bool) -> tuple[str, FinishReason | None]:
        """Text to emit and why the output ends here, if it does; ``is_last``: the length is up."""
        if token_id in self._ending_token_ids:
            return self._rest(), "stop"
        text = self._stops.push(self._detokenizer.push(token_id))
        if self._stops.is_stopped:
            return text, "stop"
        return (text + self._rest(), self._reason_at_length()) if is_last else (text, None)

    def _rest(self) -> str:
        return self._stops.push(self._detokenizer.flush()) + self._stops.flush()

    def _reason_at_length(self) -> FinishReason:
        return "stop" if self._stops.is_stopped else "length"

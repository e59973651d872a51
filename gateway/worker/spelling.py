"""How are tokens shown with their log probabilities?  What each spells, as text and as bytes."""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

from runtime import Delta, TokenLogprobs


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSpelling:
    token_bytes: Sequence[bytes]
    eos_token_ids: Set[int]

    def shown(self, delta: Delta) -> Sequence[TokenLogprobs]:
        """Without the token that ended the output, which is no part of the answer."""
        is_ended = delta.finish_reason == "stop" and delta.logprobs
        if is_ended and delta.logprobs[-1].token_id in self.eos_token_ids:
            return delta.logprobs[:-1]
        return delta.logprobs

    def text(self, token_id: int) -> str:
        return self.token_bytes[token_id].decode("utf-8", errors="replace")

    def entries(self, found: Sequence[TokenLogprobs]) -> list[dict[str, Any]]:
        """The items of OpenAI's `logprobs.content`."""
        return [
            {
                **self._token(one.token_id, one.logprob),
                "top_logprobs": [self._token(token_id, value) for token_id, value in one.top],
            }
            for one in found
        ]

    def _token(self, token_id: int, logprob: float) -> dict[str, Any]:
        return {
            "token": self.text(token_id),
            "logprob": logprob,
            "bytes": list(self.token_bytes[token_id]),
        }

"""How does an answer look on the wire?  OpenAI's chat completion objects, whole and in chunks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway import sse
from runtime import TokenLogprobs


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Writes the objects of one answer; ``token_bytes`` is what each token spells."""

    id: str
    created_s: int
    model: str
    token_bytes: Sequence[bytes]

    def role_chunk(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""}, None)

    def content_chunk(self, text: str, logprobs: Sequence[TokenLogprobs]) -> bytes:
        return self._chunk({"content": text}, None, logprobs)

    def finish_chunk(self, reason: str) -> bytes:
        return self._chunk({}, reason)

    def usage_chunk(self, usage: Mapping[str, Any]) -> bytes:
        head = self._head("chat.completion.chunk")
        return sse.encode_json({**head, "choices": [], "usage": usage})

    def whole(
        self, text: str, reason: str, usage: Mapping[str, Any], logprobs: Sequence[TokenLogprobs]
    ) -> Mapping[str, Any]:
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": reason}
        choice |= self._logprobs(logprobs)
        return {**self._head("chat.completion"), "choices": [choice], "usage": usage}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created_s, "model": self.model}

    def _chunk(
        self, delta: Mapping[str, str], reason: str | None, logprobs: Sequence[TokenLogprobs] = ()
    ) -> bytes:
        choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": reason}
        choice |= self._logprobs(logprobs)
        return sse.encode_json({**self._head("chat.completion.chunk"), "choices": [choice]})

    def _logprobs(self, entries: Iterable[TokenLogprobs]) -> dict[str, Any]:
        """The member ``logprobs``, or nothing where none were asked for."""
        content = [
            {
                **self._token(entry.token_id, entry.logprob),
                "top_logprobs": [self._token(token_id, value) for token_id, value in entry.top],
            }
            for entry in entries
        ]
        return {"logprobs": {"content": content}} if content else {}

    def _token(self, token_id: int, logprob: float) -> dict[str, Any]:
        spelled = self.token_bytes[token_id]
        text = spelled.decode("utf-8", errors="replace")
        return {"token": text, "logprob": logprob, "bytes": list(spelled)}

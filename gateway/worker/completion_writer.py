"""How do plain completions look on the wire?  OpenAI's text completion objects.

https://platform.openai.com/docs/api-reference/completions
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gateway import sse
from gateway.problems import GatewayError, openai_body
from gateway.worker.job import WrittenAnswer
from gateway.worker.obfuscation import Filler
from gateway.worker.outcome import Usage
from gateway.worker.spelling import TokenSpelling
from runtime import TokenLogprobs

Json = dict[str, Any]


class CompletionWriter:
    """`gateway.worker.job.AnswerWriter`. `echoes` is what comes before each answer's own text."""

    def __init__(
        self,
        *,
        request_id: str,
        created_s: int,
        model: str,
        echoes: Sequence[str],
        spelling: TokenSpelling,
        filler: Filler | None,
        tells_usage: bool,
    ) -> None:
        self._head: Json = {
            "id": f"cmpl-{request_id}",
            "object": "text_completion",
            "created": created_s,
            "model": model,
        }
        self._echoes = echoes
        self._offsets = [0] * len(echoes)  # characters of the tokens told so far
        self._spelling = spelling
        self._filler = filler
        self._tells_usage = tells_usage

    def start(self) -> bytes:
        told = [(index, echo) for index, echo in enumerate(self._echoes) if echo]
        return b"".join(self._chunk(self._choice(index, echo, None, ())) for index, echo in told)

    def delta(self, index: int, text: str, logprobs: Sequence[TokenLogprobs]) -> bytes:
        if not text and not logprobs:
            return b""
        return self._chunk(self._choice(index, text, None, logprobs))

    def finish(self, index: int, reason: str) -> bytes:
        return self._chunk(self._choice(index, "", reason, ()))

    def end(self, usage: Usage) -> bytes:
        if not self._tells_usage:
            return sse.DONE
        value = {**self._head, "choices": [], "usage": usage.chat_object()}
        return sse.encode_json(value) + sse.DONE

    def error(self, error: GatewayError) -> bytes:
        return sse.encode_json(openai_body(error))

    def whole(self, answers: Sequence[WrittenAnswer], usage: Usage) -> Mapping[str, Any]:
        choices = [
            self._choice(index, self._echoes[index] + one.text, one.reason, one.logprobs)
            for index, one in enumerate(answers)
        ]
        return {**self._head, "choices": choices, "usage": usage.chat_object()}

    def _choice(
        self, index: int, text: str, reason: str | None, found: Sequence[TokenLogprobs]
    ) -> Json:
        return {
            "text": text,
            "index": index,
            "logprobs": self._logprobs(index, found) if found else None,
            "finish_reason": reason,
        }

    def _chunk(self, choice: Json) -> bytes:
        value = {**self._head, "choices": [choice]}
        if self._filler is not None and choice["finish_reason"] is None:
            value["obfuscation"] = self._filler(len(json.dumps(choice)))
        return sse.encode_json(value)

    def _logprobs(self, index: int, found: Sequence[TokenLogprobs]) -> Json:
        tokens = [self._spelled(one.token_id) for one in found]
        offsets = []
        for one in found:
            offsets.append(self._offsets[index])
            self._offsets[index] += len(self._spelling.text(one.token_id))
        return {
            "tokens": tokens,
            "token_logprobs": [one.logprob for one in found],
            "top_logprobs": [
                {self._spelled(token_id): value for token_id, value in one.top} for one in found
            ],
            "text_offset": offsets,
        }

    def _spelled(self, token_id: int) -> str:
        """Part of a character is told by its bytes, as OpenAI does."""
        spelled = self._spelling.token_bytes[token_id]
        try:
            return spelled.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in spelled)

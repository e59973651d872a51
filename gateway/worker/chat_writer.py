"""How do answers to a chat look on the wire?  Chat completion objects, whole and in chunks.

https://platform.openai.com/docs/api-reference/chat
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from gateway import sse
from gateway.problems import GatewayError, openai_body
from gateway.worker.job import WrittenAnswer
from gateway.worker.obfuscation import Filler
from gateway.worker.outcome import Usage
from gateway.worker.spelling import TokenSpelling
from gateway.worker.tool_calls import CallArguments, CallBegun, Piece, Said, ToolCallParser
from runtime import TokenLogprobs

Json = dict[str, Any]


class ChatWriter:
    """`gateway.worker.job.AnswerWriter`. With `tool_names` calls of those are taken from the text;
    `filler` fills each delta up, `usage` tells it in a stream.
    """

    def __init__(
        self,
        *,
        request_id: str,
        created_s: int,
        model: str,
        num_answers: int,
        spelling: TokenSpelling,
        tool_names: Collection[str],
        filler: Filler | None,
        tells_usage: bool,
    ) -> None:
        self._request_id = request_id
        self._created_s = created_s
        self._model = model
        self._num_answers = num_answers
        self._spelling = spelling
        self._tool_names = tool_names
        self._parsers = [self._parser() for _ in range(num_answers)]
        self._filler = filler
        self._tells_usage = tells_usage
        head = sse.compact(self._head("chat.completion.chunk"))
        self._beginning = f'data: {head[:-1]},"choices":['  # of each event: written once

    # -- events ----------------------------------------------------------------------------

    def start(self) -> bytes:
        head = {"role": "assistant", "content": "", "refusal": None}
        return b"".join(self._chunk(index, head) for index in range(self._num_answers))

    def delta(self, index: int, text: str, logprobs: Sequence[TokenLogprobs]) -> bytes:
        parser = self._parsers[index]
        if parser is None and not logprobs:  # most events are this, so they are written in one go
            content = sse.compact(text)
            choice = f'{{"index":{index},"delta":{{"content":{content}}},"finish_reason":null}}'
            return self._event(choice, is_filled=True) if text else b""
        pieces: Sequence[Piece] = parser.feed(text) if parser else [Said(text)] if text else []
        if logprobs and not pieces:
            pieces = [Said("")]
        return self._pieces(index, pieces, logprobs)

    def finish(self, index: int, reason: str) -> bytes:
        parser = self._parsers[index]
        rest = self._pieces(index, parser.flush() if parser else [], ())
        return rest + self._chunk(index, {}, reason=_reason(reason, parser))

    def end(self, usage: Usage) -> bytes:
        if not self._tells_usage:
            return sse.DONE
        head = self._head("chat.completion.chunk")
        return sse.encode_json({**head, "choices": [], "usage": usage.chat_object()}) + sse.DONE

    def error(self, error: GatewayError) -> bytes:
        return sse.encode_json(openai_body(error))

    # -- the whole answer ------------------------------------------------------------------

    def whole(self, answers: Sequence[WrittenAnswer], usage: Usage) -> Mapping[str, Any]:
        choices = [self._choice(index, answer) for index, answer in enumerate(answers)]
        return {
            **self._head("chat.completion"),
            "choices": choices,
            "usage": usage.chat_object(),
        }

    def _choice(self, index: int, answer: WrittenAnswer) -> Json:
        parser = self._parser()
        pieces = [*parser.feed(answer.text), *parser.flush()] if parser else [Said(answer.text)]
        message: Json = {"role": "assistant", "content": said(pieces), "refusal": None}
        if calls := self._calls(index, pieces):
            message |= {"content": said(pieces) or None, "tool_calls": calls}
        reason = _reason(answer.reason, parser)
        choice: Json = {"index": index, "message": message, "finish_reason": reason}
        return choice | self._logprobs(answer.logprobs)

    def _calls(self, index: int, pieces: Sequence[Piece]) -> list[Json]:
        return [
            {
                "id": self._call_id(index, at),
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            for at, (name, arguments) in enumerate(calls_in(pieces))
        ]

    # -- parts -----------------------------------------------------------------------------

    def _parser(self) -> ToolCallParser | None:
        return ToolCallParser(self._tool_names) if self._tool_names else None

    def _head(self, kind: str) -> Json:
        return {
            "id": f"chatcmpl-{self._request_id}",
            "object": kind,
            "created": self._created_s,
            "model": self._model,
        }

    def _pieces(
        self, index: int, pieces: Sequence[Piece], logprobs: Sequence[TokenLogprobs]
    ) -> bytes:
        events = b""
        for piece in pieces:
            events += self._chunk(index, self._delta(index, piece), logprobs=logprobs)
            logprobs = ()
        return events

    def _delta(self, index: int, piece: Piece) -> Json:
        match piece:
            case Said(text):
                return {"content": text}
            case CallBegun(at, name):
                call = {"id": self._call_id(index, at), "type": "function"}
                return {
                    "tool_calls": [
                        {"index": at, **call, "function": {"name": name, "arguments": ""}}
                    ]
                }
            case CallArguments(at, text):
                return {"tool_calls": [{"index": at, "function": {"arguments": text}}]}

    def _chunk(
        self,
        index: int,
        delta: Json,
        *,
        reason: str | None = None,
        logprobs: Sequence[TokenLogprobs] = (),
    ) -> bytes:
        choice: Json = {"index": index, "delta": delta, "finish_reason": reason}
        choice |= self._logprobs(logprobs)
        return self._event(sse.compact(choice), is_filled=bool(delta))

    def _event(self, choice: str, *, is_filled: bool) -> bytes:
        filling = ""
        if self._filler is not None and is_filled:
            filling = f',"obfuscation":"{self._filler(len(choice))}"'
        return f"{self._beginning}{choice}]{filling}}}\n\n".encode()

    def _logprobs(self, found: Sequence[TokenLogprobs]) -> Json:
        """The member ``logprobs``, or nothing where none were asked for."""
        return {"logprobs": {"content": self._spelling.entries(found)}} if found else {}

    def _call_id(self, index: int, at: int) -> str:
        return f"call_{self._request_id}_{index}_{at}"


def said(pieces: Sequence[Piece]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, Said))


def calls_in(pieces: Sequence[Piece]) -> list[tuple[str, str]]:
    """(name, arguments) of each."""
    names = {piece.index: piece.name for piece in pieces if isinstance(piece, CallBegun)}
    return [
        (
            name,
            "".join(p.text for p in pieces if isinstance(p, CallArguments) and p.index == index),
        )
        for index, name in names.items()
    ]


def _reason(reason: str, parser: ToolCallParser | None) -> str:
    """An answer that was cut short says so, whatever it was about to call."""
    return "tool_calls" if reason == "stop" and parser and parser.num_calls else reason

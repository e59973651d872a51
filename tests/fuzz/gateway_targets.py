"""Parsers of requests: from the client's bytes to what the worker and its chat template get.

And of a worker's responses, on the way back.
"""

import json
from typing import Any

import h11

from attestation.sampling import sampling_digest
from gateway.endpoints import ENDPOINTS
from gateway.http1 import MalformedResponse, ResponseReader
from gateway.schemas import parse_chat_request
from gateway.schemas.responses import parse_response_request
from gateway.schemas.wire import parse_object
from gateway.worker.tools import conversation_of
from tests.fuzz import damage
from tests.fuzz.driver import Target

_VALIDATORS = {endpoint.path: endpoint.validate for endpoint in ENDPOINTS}
_FUNCTION = {
    "name": "look_up",
    "description": "of a word",
    "parameters": {"type": "object", "properties": {"word": {"enum": ["a", None]}}},
    "strict": True,
}
_CHAT: tuple[dict[str, Any], ...] = (
    {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "é"}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "c",
                        "type": "function",
                        "function": {"name": "look_up", "arguments": '{"word": "a"}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "c", "content": "found"},
        ],
        "tools": [{"type": "function", "function": _FUNCTION}],
        "tool_choice": {"type": "function", "function": {"name": "look_up"}},
        "n": 2,
        "logit_bias": {"5": 1.5},
        "user": {"any": ["thing"]},
    },
    {
        "model": "m",
        "messages": [{"role": "developer", "content": "x"}],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "n", "schema": {"const": None}},
        },
        "stream": True,
        "stream_options": {"include_usage": True},
        "stop": ["a", "b"],
        "seed": -5,
        "logprobs": True,
        "top_logprobs": 3,
    },
)
_RESPONSE: tuple[dict[str, Any], ...] = (
    {
        "model": "m",
        "instructions": "Be brief.",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "x"}]},
            {"type": "function_call", "call_id": "c", "name": "look_up", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "found"},
            {
                "type": "message",
                "role": "assistant",
                "id": "msg_1",
                "status": "completed",
                "content": [{"type": "output_text", "text": "y", "annotations": []}],
            },
        ],
        "tools": [{"type": "function", **_FUNCTION}],
        "tool_choice": {
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "function", "name": "look_up"}],
        },
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
        "metadata": {"a": "b"},
    },
)
_COMPLETION: tuple[dict[str, Any], ...] = (
    {"model": "m", "prompt": ["a", "b"], "n": 2, "best_of": 2, "echo": True, "stream": True},
    {"model": "m", "prompt": [[1, 2], [3]], "logprobs": 2, "guided_regex": "a+"},
)
_EMBEDDING: tuple[dict[str, Any], ...] = (
    {"model": "m", "input": ["a", "b"], "dimensions": 8, "encoding_format": "base64"},
)
_RESPONSES = (
    b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\nContent-Length: 10\r\n\r\n0123456789",
    b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n"
    b"\r\n3;a=b\r\nabc\r\n0A\r\n0123456789\r\n0\r\nx: y\r\n\r\n",
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nx-a: b, c\r\nX-A:  d\r\n\r\nto the",
    b"HTTP/1.0 204 No Content\r\ncontent-length: 0\r\n\r\n",
)
_HTTP1 = damage.pieces(
    *(b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"0\r\n\r\n", b"\0", b"\xff", b" ", b"\t", b":", b";"),
    *(b"content-length: 3\r\n", b"Content-Length: 10\r\n", b"transfer-encoding: chunked\r\n"),
    *(b"Transfer-Encoding: identity\r\n", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 x\r\n\r\n"),
    *(
        b"ffffffff\r\n",
        b"3\r\nabc\r\n",
        b"a" * 300,
        b"HTTP/1.1 100 x\r\n\r\n" * 9,
        b"a: b\r\n" * 3000,
    ),
)


def http1() -> Target:
    """However it is cut a response reads the same, and nothing else to a reader that is no kin."""

    def parse(data: bytes) -> None:
        read = _response(data, 1)
        if any(_response(data, num_parts) != read for num_parts in (2, 5, 64)):
            raise AssertionError("cut another way it reads another way")
        if read is None:
            raise MalformedResponse
        if _by_h11(data) not in (None, read):
            raise AssertionError("it can be read in two ways")

    return Target(name="http1", parse=parse, seeds=_RESPONSES, mutate=_HTTP1)


def _response(data: bytes, num_parts: int) -> tuple[int, bytes] | None:
    """Status and content, read in so many parts; None where it is refused or not whole."""
    reader, content, num_bytes = ResponseReader(), b"", len(data) // num_parts + 1
    try:
        for at in range(0, len(data), num_bytes):
            content += b"".join(reader.feed(data[at : at + num_bytes]))
        if not reader.is_complete:
            reader.finish()
    except MalformedResponse:
        return None
    if reader.head is None:
        raise AssertionError("complete without a head")
    return reader.head.status, content


def _by_h11(data: bytes) -> tuple[int, bytes] | None:
    connection, status, content = h11.Connection(h11.CLIENT), 0, b""
    connection.send(h11.Request(method="GET", target="/", headers=[("host", "x")]))
    connection.send(h11.EndOfMessage())
    try:
        for piece in (data, b""):
            connection.receive_data(piece)
            while (event := connection.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
                match event:
                    case h11.Response():
                        status = event.status_code
                    case h11.Data():
                        content += bytes(event.data)
                    case h11.EndOfMessage():
                        return status, content
                    case h11.ConnectionClosed():
                        return None
    except h11.RemoteProtocolError:
        return None
    return None


def chat_request() -> Target:
    def parse(data: bytes) -> None:
        _pass_on("/v1/chat/completions", data)
        for knows_tools in (True, False):
            conversation_of(parse_chat_request(data), knows_tools=knows_tools)

    return _target("chat-request", parse, _CHAT)


def response_request() -> Target:
    def parse(data: bytes) -> None:
        _pass_on("/v1/responses", data)
        _, chat = parse_response_request(data)
        for knows_tools in (True, False):
            conversation_of(chat, knows_tools=knows_tools)

    return _target("response-request", parse, _RESPONSE)


def completion_request() -> Target:
    return _target("completion-request", lambda d: _pass_on("/v1/completions", d), _COMPLETION)


def embedding_request() -> Target:
    return _target("embedding-request", lambda d: _pass_on("/v1/embeddings", d), _EMBEDDING)


def _pass_on(path: str, data: bytes) -> None:
    """As the gateway does: what the worker gets says the same, and a receipt can name it."""
    validate, asked = _VALIDATORS[path], parse_object(data)
    call = validate(asked)
    sampling_digest(asked)
    if validate(parse_object(call.body)).body != call.body:
        raise AssertionError("the worker would read something else")


def _target(name: str, parse: Any, seeds: tuple[dict[str, Any], ...]) -> Target:
    return Target(
        name=name,
        parse=parse,
        seeds=[json.dumps(seed).encode() for seed in seeds],
        mutate=damage.json_text,
    )

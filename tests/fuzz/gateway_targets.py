"""Parsers of requests: from the client's bytes to what the worker and its chat template get."""

import json
from typing import Any

from attestation.sampling import sampling_digest
from gateway.endpoints import ENDPOINTS
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

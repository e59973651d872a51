"""How does a request read to vLLM or SGLang, and their answer to our clients?

Both speak OpenAI's API with extensions of their own. What one of them cannot do is refused, never
dropped: a server that ignores an unknown member would answer without it.
"""

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from gateway.chat_call import CHAT_PATH
from gateway.completion_call import COMPLETIONS_PATH
from gateway.embedding_call import EMBEDDINGS_PATH
from gateway.problems import GatewayError

Members = dict[str, Any]

_PROMPT_PARAMS: Final[Mapping[str, str]] = MappingProxyType(
    {CHAT_PATH: "messages", COMPLETIONS_PATH: "prompt", EMBEDDINGS_PATH: "input"}
)
_ERROR_TEXT: Final = "The model server failed."


def _vllm(members: Members) -> None:
    """[vLLM docs, Structured Outputs: `structured_outputs`]"""
    guided = {
        name: members.pop(member)
        for member, name in (("guided_regex", "regex"), ("guided_choice", "choice"))
        if member in members
    }
    if guided:
        members["structured_outputs"] = guided


def _sglang(members: Members) -> None:
    """[SGLang docs, Structured Outputs: `regex`]"""
    if "guided_choice" in members:
        raise GatewayError(
            "unsupported_parameter",
            "The server behind this model has no 'guided_choice'.",
            param="guided_choice",
        )
    if "guided_regex" in members:
        members["regex"] = members.pop("guided_regex")


DIALECTS: Final[Mapping[str, Callable[[Members], None]]] = MappingProxyType(
    {"vllm": _vllm, "sglang": _sglang}
)


def upstream_body(body: bytes, *, dialect: str, cache_salt: bytes) -> bytes:
    """Our own words, as `Call.body` has them, in the server's.

    The salt keeps the prefix caches of tenants apart; both servers take it as `cache_salt`.
    Raises: GatewayError `unsupported_parameter`.
    """
    members: Members = json.loads(body)
    DIALECTS[dialect](members)
    if not members.get("tools", True):  # vLLM refuses a list without any
        del members["tools"]
    if cache_salt:
        members["cache_salt"] = cache_salt.hex()
    if "stream_options" in members:
        members["stream_options"] = {"include_usage": True}
    return json.dumps(members, ensure_ascii=False, separators=(",", ":")).encode()


def client_answer(answer: Any, *, request_id: str) -> Members:
    """A whole answer, or one chunk of a stream, as our own engine would have said it.

    Raises: ValueError, KeyError, TypeError for one that is malformed; GatewayError
    `generation_failed` when it is an error.
    """
    members = dict(answer)
    if "error" in members:
        raise GatewayError("generation_failed", _ERROR_TEXT)
    if isinstance(members.get("id"), str):
        prefix, _, _ = members["id"].partition("-")
        members["id"] = f"{prefix}-{request_id}"
    for choice in members.get("choices", ()):
        choice.setdefault("finish_reason", None)
    if members.get("usage") is not None:
        members["usage"] = _usage(members["usage"])
    return members


def _usage(usage: Mapping[str, Any]) -> Members:
    """Cached tokens are told only where the server was started to tell them."""
    details = usage.get("prompt_tokens_details") or {}
    cached = details.get("cached_tokens") or 0
    return {**usage, "prompt_tokens_details": {**details, "cached_tokens": int(cached)}}


def refusal(status: int, body: bytes, *, path: str) -> GatewayError:
    """What a refusal of the server means to who asked at `path`; its own text may be anything."""
    if status in {400, 413, 422}:
        if b"context length" in body:
            return GatewayError(
                "context_length_exceeded",
                "The prompt leaves no room for an answer.",
                param=_PROMPT_PARAMS[path],
            )
        return GatewayError("invalid_value", "The model server refused the request.")
    if status == 404 and path == EMBEDDINGS_PATH:
        return GatewayError("model_not_capable", "This model has no embeddings.", param="model")
    if status == 404:
        return GatewayError("model_not_found", "This model is not served here.", param="model")
    if status in {429, 503}:
        return GatewayError("overloaded", "The model server takes no more requests now.")
    return GatewayError("generation_failed", _ERROR_TEXT)

"""What is a chat completion to the relay?"""

import re
from collections.abc import Mapping
from typing import Any, Final

from gateway.calls import Call
from gateway.chunks import ChunkReader
from gateway.schemas import inner_body, validate_chat_request
from telemetry import semconv

CHAT_PATH: Final = "/v1/chat/completions"
_WRITTEN: Final = ("content", "tool_calls", "reasoning_content", "reasoning")
_PLAIN_TEXT: Final = re.compile(  # as gateway.worker.chat_writer writes it; all ASCII
    rb'\{"id":"[\w-]*","object":"chat\.completion\.chunk","created":[1-9][0-9]{0,11},"model":"[\w./:-]*",'
    rb'"choices":\[\{"index":(?:0|[1-9][0-9]{0,2}),"delta":\{"content":'
    rb'"(?:[ !#-\[\]-~]++|\\(?:["\\/bfnrt]|u[0-9a-f]{4}))++"\},"finish_reason":null\}\]'
    rb'(?:,"obfuscation":"[\w-]*")?\}'
)


def chat_call(asked: Mapping[str, Any]) -> Call:
    """Of a parsed body. Raises: GatewayError as `parse_chat_request`."""
    chat = validate_chat_request(asked)
    return Call(
        path=CHAT_PATH,
        operation=semconv.OPERATION_CHAT,
        model=chat.model,
        body=inner_body(chat),
        is_streamed=chat.is_streamed,
        reader=chat_reader(wants_usage=chat.wants_usage_chunk),
        max_tokens=chat.output_token_limit,
        num_choices=chat.num_answers,
        wants_usage=chat.wants_usage_chunk,
        wants_obfuscation=chat.wants_obfuscation,
    )


def chat_reader(*, wants_usage: bool) -> ChunkReader:
    return ChunkReader(wants_usage=wants_usage, has_text=_has_text, plain_text=_PLAIN_TEXT)


def _has_text(choice: dict[str, Any]) -> bool:
    """A call that is written is text as well; so is what servers behind an adapter think aloud."""
    delta = choice["delta"]
    return any(delta.get(name) for name in _WRITTEN)

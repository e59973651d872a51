"""What is a plain completion to the relay?"""

from collections.abc import Mapping
from typing import Any, Final

from gateway.calls import Call
from gateway.chunks import ChunkReader
from gateway.schemas.completions import completion_inner_body, validate_completion_request
from telemetry import semconv

COMPLETIONS_PATH: Final = "/v1/completions"


def completion_call(asked: Mapping[str, Any]) -> Call:
    """Of a parsed body. Raises: GatewayError as `parse_completion_request`."""
    request = validate_completion_request(asked)
    return Call(
        path=COMPLETIONS_PATH,
        operation=semconv.OPERATION_TEXT_COMPLETION,
        model=request.model,
        body=completion_inner_body(request),
        is_streamed=request.is_streamed,
        reader=ChunkReader(wants_usage=request.wants_usage_chunk, has_text=_has_text),
        max_tokens=request.output_token_limit,
        num_choices=len(request.prompts) * request.num_answers,
        wants_usage=request.wants_usage_chunk,
        wants_obfuscation=request.wants_obfuscation,
    )


def _has_text(choice: dict[str, Any]) -> bool:
    return bool(choice["text"])

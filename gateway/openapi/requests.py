"""What may be sent?  The wire models' own schemas, with what else is let through at their top."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gateway.schemas.chat import NEUTRAL_VALUES as CHAT_NEUTRAL
from gateway.schemas.chat import ChatRequest
from gateway.schemas.completions import NEUTRAL_VALUES as COMPLETION_NEUTRAL
from gateway.schemas.completions import CompletionRequest
from gateway.schemas.embeddings import EmbeddingRequest
from gateway.schemas.responses import NEUTRAL_VALUES as RESPONSE_NEUTRAL
from gateway.schemas.responses import ResponseRequest
from gateway.schemas.wire import IGNORED_PARAMETERS, Wire

Json = dict[str, Any]
_REF: Final = "#/components/schemas/{model}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestModel:
    model: type[Wire]
    neutral: Mapping[str, tuple[Any, ...]]


REQUESTS: Final[Mapping[str, RequestModel]] = {
    "/v1/chat/completions": RequestModel(model=ChatRequest, neutral=CHAT_NEUTRAL),
    "/v1/completions": RequestModel(model=CompletionRequest, neutral=COMPLETION_NEUTRAL),
    "/v1/responses": RequestModel(model=ResponseRequest, neutral=RESPONSE_NEUTRAL),
    "/v1/embeddings": RequestModel(model=EmbeddingRequest, neutral={}),
}


def request_schemas() -> dict[str, Json]:
    """By name, the models that they refer to included."""
    found: dict[str, Json] = {}
    for request in REQUESTS.values():
        schema = request.model.model_json_schema(by_alias=True, ref_template=_REF)
        found |= {name: _closed(part) for name, part in schema.pop("$defs", {}).items()}
        properties = schema["properties"]
        properties |= {
            name: {"enum": [*values, None], "description": "Only values that ask for nothing."}
            for name, values in request.neutral.items()
        }
        properties |= {
            name: {"description": "Accepted and forgotten."} for name in sorted(IGNORED_PARAMETERS)
        }
        found[request.model.__name__] = _closed(schema)
    return found


def _closed(schema: Any) -> Any:
    """Without defaults of null, which say nothing; maps by pattern have no other members."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {
        name: _closed(item)
        for name, item in schema.items()
        if not (name == "default" and item is None) and not (name == "title" and item != "object")
    }
    if "patternProperties" in closed:
        closed["additionalProperties"] = False
    return closed

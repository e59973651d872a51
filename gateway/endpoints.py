"""Which endpoints go to a worker?  One line each; the routes are made from them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gateway.auth import Scope
from gateway.calls import Call
from gateway.chat_call import CHAT_PATH, chat_call
from gateway.completion_call import COMPLETIONS_PATH, completion_call
from gateway.embedding_call import EMBEDDINGS_PATH, embedding_call
from gateway.response_call import RESPONSES_PATH, response_call
from telemetry import semconv


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A POST of JSON that one worker answers. `validate` raises GatewayError for a bad object."""

    path: str
    operation: str  # `gen_ai.operation.name`
    validate: Callable[[Mapping[str, Any]], Call]
    scope: Scope = Scope.CHAT


ENDPOINTS: Final = (
    Endpoint(path=CHAT_PATH, operation=semconv.OPERATION_CHAT, validate=chat_call),
    Endpoint(
        path=COMPLETIONS_PATH,
        operation=semconv.OPERATION_TEXT_COMPLETION,
        validate=completion_call,
    ),
    Endpoint(path=RESPONSES_PATH, operation=semconv.OPERATION_CHAT, validate=response_call),
    Endpoint(
        path=EMBEDDINGS_PATH,
        operation=semconv.OPERATION_EMBEDDINGS,
        validate=embedding_call,
        scope=Scope.EMBEDDINGS,
    ),
)

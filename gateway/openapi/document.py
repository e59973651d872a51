"""How is the API described?  OpenAPI 3.1, from the wire models and the table of operations.

[OpenAPI Specification 3.1.0]
"""

import functools
from typing import Any, Final

from gateway.openapi.answers import ANSWERS, ref
from gateway.openapi.operations import JSON, OPERATIONS, Operation
from gateway.openapi.requests import REQUESTS, request_schemas
from gateway.problems import PROBLEM_MEDIA_TYPE

Json = dict[str, Any]

_API_VERSION: Final = "1"
_KEY: Final = "apiKey"
_SECURITY: Final[dict[bool | None, list[Json]]] = {
    True: [{_KEY: []}],
    None: [{}, {_KEY: []}],
    False: [],
}
_TEXTS: Final = {
    304: "It is as the ETag says.",
    400: "The request is not valid, or cannot be done.",
    401: "No API key, or one that is not known.",
    403: "The API key may not do this.",
    404: "There is no such thing.",
    408: "It took too long.",
    409: "It was sent before.",
    412: "What the client insists on is not so here.",
    413: "It is too large.",
    415: "Another media type is taken here.",
    421: "This host is not served here.",
    422: "It is sealed to a key that is not known here, or the answer cannot have its form.",
    429: "This tenant has asked for too much.",
    499: "The client has gone away.",
    500: "The gateway failed.",
    502: "The worker failed.",
    503: "Not now.",
}


@functools.cache
def openapi_document() -> Json:
    """The whole document; the same value each time, so do not change it."""
    paths: dict[str, Json] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Starshade gateway",
            "version": _API_VERSION,
            "description": "OpenAI's API in front of attested workers, sealed request by request.",
        },
        "paths": paths,
        "components": {
            "schemas": {**request_schemas(), **ANSWERS},
            "securitySchemes": {_KEY: {"type": "http", "scheme": "bearer"}},
        },
    }


def _described(operation: Operation) -> Json:
    answers = {media_type: {"schema": schema} for media_type, schema in operation.answers.items()}
    described: Json = {
        "operationId": _operation_id(operation),
        "summary": operation.summary,
        "security": _SECURITY[operation.needs_key],
        "responses": {
            "200": {"description": "As asked.", "content": answers},
            **{str(status): _refused(operation, status) for status in sorted(operation.statuses)},
        },
    }
    if operation.parameters:
        described["parameters"] = list(operation.parameters)
    if body := _body(operation):
        described["requestBody"] = body
    return described


def _body(operation: Operation) -> Json | None:
    if operation.takes:
        content: Json = {media_type: {"schema": {}} for media_type in operation.takes}
        return {"required": True, "content": content}
    if operation.path not in REQUESTS:
        return None
    name = REQUESTS[operation.path].model.__name__
    return {"required": True, "content": {JSON: {"schema": ref(name)}}}


def _refused(operation: Operation, status: int) -> Json:
    """One of `/v1/` has OpenAI's shape, but for the key error of EHBP."""
    if status < 400:
        return {"description": _TEXTS[status]}
    is_openai = operation.path.startswith("/v1/")
    content = {JSON: {"schema": ref("Error")}} if is_openai else {}
    if not is_openai or status == 422:
        content[PROBLEM_MEDIA_TYPE] = {"schema": ref("Problem")}
    return {"description": _TEXTS[status], "content": content}


def _operation_id(operation: Operation) -> str:
    words = "".join(char if char.isalnum() else " " for char in operation.path).split()
    return "_".join([operation.method, *words])

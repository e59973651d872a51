"""Which operations are there, and how can each of them end?  A line for each method of a path."""

from dataclasses import dataclass
from typing import Any, Final

from gateway.openapi.answers import BOOLEAN, COUNT, STRING, closed, constant, list_of, or_null, ref
from gateway.pins import HEADER, PIN

Json = dict[str, Any]

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
OHTTP_KEYS: Final = "application/ohttp-keys"
BINARY: Final[Json] = {"type": "string", "format": "binary"}
_KEYED: Final = (401, 403, 421, 429, 499, 500, 503)  # of all that needs a key
_SENT: Final = (400, 404, 408, 409, 412, 413, 415, 422, 502)  # of what is sent on to a worker
_SEALED: Final = (400, 408, 409, 412, 413, 415, 421, 422, 499, 500, 502, 503)
_PASSED_ON: Final = (401, 403, 429)  # of sealed requests that only workers open
_OPEN: Final = (421, 500, 503)


_PIN: Final[Json] = {
    "name": HEADER,
    "in": "header",
    "description": "What the client insists on, such as `mode=terminate`.",
    "schema": {"type": "string", "pattern": f"^{PIN}(, *{PIN})*$"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """`answers`: media type to schema of a 200; `statuses`: how it is refused."""

    path: str
    method: str = "get"
    summary: str
    answers: dict[str, Json]
    statuses: tuple[int, ...]
    needs_key: bool | None = False  # None: outside the seal only where it is passed on
    parameters: tuple[Json, ...] = ()
    takes: tuple[str, ...] = ()  # media types of a body that is no JSON


def _written(path: str, summary: str, answer: str, *, events: str | None = None) -> Operation:
    """An endpoint that a worker answers; its request's schema is found by its path."""
    answers = {JSON: ref(answer)}
    if events is not None:
        answers[EVENTS] = _event(events)
    statuses = (*_SENT, *_KEYED)
    return Operation(
        path=path,
        method="post",
        summary=summary,
        answers=answers,
        statuses=statuses,
        needs_key=True,
        parameters=(_PIN,),
    )


def _event(name: str) -> Json:
    """One server-sent event: its data is JSON, but for the last of chats and completions."""
    value = {"anyOf": [ref(name), ref("Error")]}
    data: Json = {"type": "string", "contentMediaType": JSON, "contentSchema": value}
    return {
        "type": "object",
        "properties": {"event": STRING, "data": {"anyOf": [constant("[DONE]"), data]}},
        "required": ["data"],
    }


def _in_path(name: str) -> Json:
    return {
        "name": name,
        "in": "path",
        "required": True,
        "schema": {"type": "string", "minLength": 1},
    }


_NONCE: Final[Json] = {
    "name": "nonce",
    "in": "query",
    "required": True,
    "schema": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
}
_TENANT_USE: Final = closed(
    tenant=STRING,
    open_requests=COUNT,
    max_open_requests=or_null(COUNT),
    requests_per_minute=or_null(COUNT),
    remaining_requests=or_null(COUNT),
    tokens_per_minute=or_null(COUNT),
    remaining_tokens=or_null(COUNT),
)
_ADDRESS: Final[Json] = {
    "name": "address",
    "in": "query",
    "required": True,
    "schema": {"type": "string", "minLength": 1},
}
_MODEL: Final[Json] = {
    "name": "model",
    "in": "query",
    "description": "Where only workers open requests: the keys of those that serve it.",
    "schema": STRING,
}
_NODE: Final[Json] = {"name": "node", "in": "query", "schema": STRING}
_NODE_ENTRY: Final = closed(
    id=STRING,
    object=constant("node"),
    state=STRING,
    reachable=BOOLEAN,
    tier=or_null(STRING),
    code=or_null(STRING),
    simulated=or_null(BOOLEAN),
    trust_anchor=or_null(STRING),
    policy=or_null(STRING),
    policy_sha256=or_null(STRING),
    verdict_id=or_null(STRING),
    weights_sha256=or_null(STRING),
    key_config_sha256=or_null(STRING),
    keyset_sha256=or_null(STRING),
    not_before=or_null(STRING),
    not_after=or_null(STRING),
    models=list_of(STRING),
)

OPERATIONS: Final = (
    _written(
        "/v1/chat/completions", "Answer a chat", "ChatCompletion", events="ChatCompletionChunk"
    ),
    _written(
        "/v1/completions", "Go on with a text", "TextCompletion", events="TextCompletionChunk"
    ),
    _written(
        "/v1/responses", "Answer, in OpenAI's newer words", "Response", events="ResponseEvent"
    ),
    _written("/v1/embeddings", "Embed texts", "EmbeddingList"),
    Operation(
        path="/v1/models",
        summary="The models of the workers that are verified now",
        answers={JSON: ref("ModelList")},
        statuses=_KEYED,
        needs_key=True,
    ),
    Operation(
        path="/v1/models/{model}",
        summary="One of them",
        answers={JSON: ref("Model")},
        statuses=(404, *_KEYED),
        needs_key=True,
        parameters=(_in_path("model"),),
    ),
    Operation(
        path="/v1/attestation",
        summary="Evidence over a nonce, the gateway's or a node's",
        answers={JSON: {"type": "object"}},
        statuses=(400, 404, *_OPEN),
        parameters=(_NONCE, _NODE),
    ),
    Operation(
        path="/v1/nodes",
        summary="Each worker's lease, verdict and models",
        answers={JSON: closed(object=constant("list"), data=list_of(_NODE_ENTRY))},
        statuses=_OPEN,
    ),
    Operation(
        path="/v1/nodes/{id}/verdict",
        summary="The last verdict on a worker: every check, claim and gap, and its lease",
        answers={
            JSON: closed(
                object=constant("verdict"),
                node=STRING,
                tee=or_null(STRING),
                code=or_null(STRING),
                lease={"type": "object"},
                result=or_null({"type": "object"}),
            )
        },
        statuses=(404, *_OPEN),
        parameters=(_in_path("id"),),
    ),
    Operation(
        path="/v1/receipts/{id}",
        summary="What the gateway signed about a request of this credential",
        answers={JSON: {"type": "object"}},
        statuses=(404, *_KEYED),
        needs_key=True,
        parameters=(_in_path("id"),),
    ),
    Operation(
        path="/.well-known/ohttp-gateway",
        summary="The keys that sealed requests are opened with",
        answers={OHTTP_KEYS: BINARY},
        statuses=(304, 404, *_OPEN),
        parameters=(_MODEL,),
    ),
    *(
        Operation(
            path=path,
            method="post",
            summary="One sealed request, plain or chunked [RFC 9458]",
            answers={"message/ohttp-res": BINARY, "message/ohttp-chunked-res": BINARY},
            statuses=(*_SEALED, *_PASSED_ON),
            needs_key=None,
            takes=("message/ohttp-req", "message/ohttp-chunked-req"),
        )
        for path in ("/.well-known/ohttp-gateway", "/ohttp")
    ),
    Operation(
        path="/.well-known/hpke-keys",
        summary="The key that EHBP seals to",
        answers={OHTTP_KEYS: BINARY},
        statuses=(304, 404, *_OPEN),
    ),
    Operation(
        path="/",
        method="post",
        summary="One sealed request in TNG's framing",
        answers={"application/octet-stream": BINARY},
        statuses=(404, *_SEALED),
        takes=("application/octet-stream",),
    ),
    Operation(
        path="/healthz",
        summary="Whether the process lives",
        answers={JSON: closed(status=constant("alive"))},
        statuses=_OPEN,
    ),
    Operation(
        path="/readyz",
        summary="Whether a verified worker can be reached",
        answers={JSON: closed(status=constant("ready"), simulated=BOOLEAN, models=list_of(STRING))},
        statuses=_OPEN,
    ),
    Operation(
        path="/metrics",
        summary="Counts for operators, in Prometheus' text format",
        answers={"text/plain": STRING},
        statuses=_KEYED,
        needs_key=True,
    ),
    Operation(
        path="/admin/tenants",
        summary="What tenants use of what they may",
        answers={JSON: closed(object=constant("list"), data=list_of(_TENANT_USE))},
        statuses=_KEYED,
        needs_key=True,
    ),
    Operation(
        path="/admin/workers",
        method="post",
        summary="Attest one more worker, and use it then",
        answers={JSON: _NODE_ENTRY},
        statuses=(400, *_KEYED),
        needs_key=True,
        parameters=(_ADDRESS,),
    ),
    Operation(
        path="/admin/workers",
        method="delete",
        summary="Use a worker no more",
        answers={JSON: closed(object=constant("node"), deleted=BOOLEAN)},
        statuses=(400, 404, *_KEYED),
        needs_key=True,
        parameters=(_ADDRESS,),
    ),
    Operation(
        path="/openapi.json",
        summary="This document",
        answers={JSON: {"type": "object"}},
        statuses=_OPEN,
    ),
)

"""What comes back?  Schemas of answers, closed: a member that is not here is a defect."""

from typing import Any, Final

from gateway.problems import known_codes

Json = dict[str, Any]

STRING: Final[Json] = {"type": "string"}
COUNT: Final[Json] = {"type": "integer", "minimum": 0}
NUMBER: Final[Json] = {"type": "number"}
BOOLEAN: Final[Json] = {"type": "boolean"}


def ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def closed(optional: tuple[str, ...] = (), **members: Json) -> Json:
    required = [name for name in members if name not in optional]
    return {
        "type": "object",
        "properties": members,
        "required": required,
        "additionalProperties": False,
    }


def list_of(items: Json) -> Json:
    return {"type": "array", "items": items}


def or_null(schema: Json) -> Json:
    return {"anyOf": [schema, {"type": "null"}]}


def constant(*values: Any) -> Json:
    return {"enum": list(values)}


_TOKEN: Final = closed(token=STRING, logprob=NUMBER, bytes=list_of(COUNT))
_LOGPROB: Final = closed(
    token=STRING, logprob=NUMBER, bytes=list_of(COUNT), top_logprobs=list_of(_TOKEN)
)
_CHAT_USAGE: Final = closed(
    prompt_tokens=COUNT,
    completion_tokens=COUNT,
    total_tokens=COUNT,
    prompt_tokens_details=closed(cached_tokens=COUNT),
)
_CALL: Final = closed(
    id=STRING, type=constant("function"), function=closed(name=STRING, arguments=STRING)
)
_MESSAGE: Final = closed(
    ("tool_calls",),
    role=constant("assistant"),
    content=or_null(STRING),
    refusal={"type": "null"},
    tool_calls=list_of(_CALL),
)
_OUTPUT_TEXT: Final = closed(
    type=constant("output_text"),
    text=STRING,
    annotations={"type": "array", "maxItems": 0},
    logprobs=list_of(_LOGPROB),
)
_ITEM_STATUS: Final = constant("completed", "incomplete")
_OUTPUT_ITEM: Final[Json] = {
    "anyOf": [
        closed(
            id=STRING,
            type=constant("message"),
            role=constant("assistant"),
            status=_ITEM_STATUS,
            content=list_of(_OUTPUT_TEXT),
        ),
        closed(
            id=STRING,
            type=constant("function_call"),
            status=_ITEM_STATUS,
            call_id=STRING,
            name=STRING,
            arguments=STRING,
        ),
    ]
}

_CALL_DELTA: Final = closed(
    ("id", "type"),
    index=COUNT,
    id=STRING,
    type=constant("function"),
    function=closed(("name",), name=STRING, arguments=STRING),
)
_DELTA: Final = closed(
    ("role", "content", "refusal", "tool_calls"),
    role=constant("assistant"),
    content=STRING,
    refusal={"type": "null"},
    tool_calls=list_of(_CALL_DELTA),
)
_TEXT_LOGPROBS: Final = closed(
    tokens=list_of(STRING),
    token_logprobs=list_of(NUMBER),
    top_logprobs=list_of({"type": "object", "additionalProperties": NUMBER}),
    text_offset=list_of(COUNT),
)


def _text_choice(*reasons: str | None) -> Json:
    return closed(
        text=STRING,
        index=COUNT,
        logprobs=or_null(_TEXT_LOGPROBS),
        finish_reason=constant(*reasons),
    )


ANSWERS: Final[dict[str, Json]] = {
    "ChatCompletionChunk": closed(
        ("usage", "obfuscation"),
        id=STRING,
        object=constant("chat.completion.chunk"),
        created=COUNT,
        model=STRING,
        choices=list_of(
            closed(
                ("logprobs",),
                index=COUNT,
                delta=_DELTA,
                finish_reason=constant("stop", "length", "tool_calls", None),
                logprobs=closed(content=list_of(_LOGPROB)),
            )
        ),
        usage=_CHAT_USAGE,
        obfuscation=STRING,
    ),
    "TextCompletionChunk": closed(
        ("usage", "obfuscation"),
        id=STRING,
        object=constant("text_completion"),
        created=COUNT,
        model=STRING,
        choices=list_of(_text_choice("stop", "length", None)),
        usage=_CHAT_USAGE,
        obfuscation=STRING,
    ),
    "ResponseEvent": {
        "type": "object",
        "properties": {"type": STRING, "sequence_number": COUNT},
        "required": ["type", "sequence_number"],
    },
    "ChatCompletion": closed(
        id=STRING,
        object=constant("chat.completion"),
        created=COUNT,
        model=STRING,
        choices=list_of(
            closed(
                ("logprobs",),
                index=COUNT,
                message=_MESSAGE,
                finish_reason=constant("stop", "length", "tool_calls"),
                logprobs=closed(content=list_of(_LOGPROB)),
            )
        ),
        usage=_CHAT_USAGE,
    ),
    "TextCompletion": closed(
        id=STRING,
        object=constant("text_completion"),
        created=COUNT,
        model=STRING,
        choices=list_of(_text_choice("stop", "length")),
        usage=_CHAT_USAGE,
    ),
    "Response": closed(
        id=STRING,
        object=constant("response"),
        created_at=COUNT,
        status=constant("completed", "incomplete"),
        background=constant(False),
        error={"type": "null"},
        incomplete_details=or_null(closed(reason=constant("max_output_tokens"))),
        model=STRING,
        instructions=or_null(STRING),
        max_output_tokens=or_null(COUNT),
        max_tool_calls={"type": "null"},
        metadata={"type": "object", "additionalProperties": STRING},
        parallel_tool_calls=BOOLEAN,
        temperature=NUMBER,
        text=closed(format={"type": "object"}),
        tool_choice={"anyOf": [STRING, {"type": "object"}]},
        tools=list_of({"type": "object"}),
        top_logprobs=COUNT,
        top_p=NUMBER,
        output=list_of(_OUTPUT_ITEM),
        previous_response_id={"type": "null"},
        reasoning=closed(effort={"type": "null"}, summary={"type": "null"}),
        store=constant(False),
        truncation=constant("disabled"),
        usage=closed(
            input_tokens=COUNT,
            input_tokens_details=closed(cached_tokens=COUNT, cache_write_tokens=COUNT),
            output_tokens=COUNT,
            output_tokens_details=closed(reasoning_tokens=COUNT),
            total_tokens=COUNT,
        ),
    ),
    "EmbeddingList": {
        "type": "object",
        "properties": {
            "data": list_of({"type": "object"}),
            "usage": {"type": "object", "required": ["prompt_tokens"]},
        },
        "required": ["data", "usage"],
    },
    "Model": closed(
        id=STRING, object=constant("model"), created=COUNT, owned_by=constant("starshade")
    ),
    "ModelList": closed(object=constant("list"), data=list_of(ref("Model"))),
    "Error": closed(
        error=closed(
            ("receipt",),
            message=STRING,
            type=STRING,
            param=or_null(STRING),
            code=constant(*known_codes()),
            receipt=STRING,
        )
    ),
    "Problem": closed(
        ("detail_code",),
        type=STRING,
        title=STRING,
        status=COUNT,
        detail=STRING,
        code=constant(*known_codes()),
        detail_code=STRING,
    ),
}

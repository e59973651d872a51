"""What do a chat request's parameters mean to the engine?"""

import json

from gateway.response_format import JsonSchemaFormat, TextFormat
from gateway.schemas import ChatRequest
from runtime import GrammarSpec, SamplingParams
from runtime.grammar import ANY_OBJECT_SCHEMA


def sampling_params(chat: ChatRequest, *, limit: int) -> SamplingParams:
    """``limit`` is the room that the context leaves. Raises: runtime.InvalidSampling."""
    asked = chat.output_token_limit
    return SamplingParams(
        max_tokens=limit if asked is None else min(asked, limit),
        temperature=1.0 if chat.temperature is None else chat.temperature,
        top_p=1.0 if chat.top_p is None else chat.top_p,
        top_k=chat.top_k or 0,
        min_p=chat.min_p or 0.0,
        seed=chat.seed,
        logit_bias={int(token_id): bias for token_id, bias in (chat.logit_bias or {}).items()},
        presence_penalty=chat.presence_penalty or 0.0,
        frequency_penalty=chat.frequency_penalty or 0.0,
        repetition_penalty=1.0 if chat.repetition_penalty is None else chat.repetition_penalty,
        logprobs=chat.num_top_logprobs,
        stop=chat.stop_strings(),
        ignore_eos=bool(chat.ignore_eos),
    )


def grammar_parameter(chat: ChatRequest) -> str | None:
    """Which parameter asks for a grammar; there is at most one."""
    if chat.guided_regex is not None:
        return "guided_regex"
    if chat.guided_choice is not None:
        return "guided_choice"
    is_free = chat.response_format is None or isinstance(chat.response_format, TextFormat)
    return None if is_free else "response_format"


def grammar_spec(chat: ChatRequest) -> GrammarSpec:
    """Of a request with a ``grammar_parameter``. Raises: runtime.InvalidGrammar, too large."""
    if chat.guided_regex is not None:
        return GrammarSpec(kind="regex", sources=(chat.guided_regex,))
    if chat.guided_choice is not None:
        return GrammarSpec(kind="choice", sources=tuple(chat.guided_choice))
    schema = ANY_OBJECT_SCHEMA
    if isinstance(chat.response_format, JsonSchemaFormat):
        schema = json.dumps(chat.response_format.json_schema.schema_object, ensure_ascii=False)
    return GrammarSpec(kind="json_schema", sources=(schema,))

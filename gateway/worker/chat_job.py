"""What does a chat request mean to the engine?"""

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Final

from gateway.problems import GatewayError
from gateway.schemas import ChatRequest, parse_chat_request
from gateway.schemas.response_format import JsonSchemaFormat
from gateway.worker.chat_writer import ChatWriter
from gateway.worker.inner import InnerRequest
from gateway.worker.job import Job, ServedModel
from gateway.worker.parameters import compiled, guided_spec, sampling_params
from gateway.worker.tool_calls import CLOSE
from gateway.worker.tool_grammar import needs_tool_grammar, tool_grammar
from gateway.worker.tools import conversation_of
from runtime import GrammarSpec, SamplingParams
from runtime.grammar import ANY_OBJECT_SCHEMA

MAX_INLINE_CHARS: Final = 16_384  # a longer prompt is tokenized off the event loop


async def chat_job(model: ServedModel, request: InnerRequest) -> Job:
    """Raises: GatewayError, RequestRejected."""
    chat = parse_chat_request(request.body)
    model.require_name(chat.model)
    writer = ChatWriter(
        request_id=request.request_id,
        created_s=int(model.unix_s()),
        model=chat.model,
        num_answers=chat.num_answers,
        spelling=model.spelling,
        tool_names=tool_names(chat),
        filler=model.filler if chat.wants_obfuscation else None,
        tells_usage=chat.wants_usage_chunk,
    )
    return Job(
        prompts=[await chat_prompt(model, chat)],
        prompt_param="messages",
        num_answers=chat.num_answers,
        sampling=partial(chat_sampling, chat),
        grammar=await chat_grammar(model, chat),
        is_streamed=chat.is_streamed,
        is_held_whole=not chat.is_streamed,
        writer=writer,
    )


def tool_names(chat: ChatRequest) -> frozenset[str]:
    return frozenset(tool.function.name for tool in chat.offered_tools)


async def chat_prompt(model: ServedModel, chat: ChatRequest) -> tuple[int, ...]:
    tokenizer = model.tokenizer
    conversation = conversation_of(chat, knows_tools=tokenizer.writes_tool_calls)
    now = datetime.fromtimestamp(model.unix_s(), UTC)
    encode = partial(
        tokenizer.encode_chat, conversation.messages, tools=conversation.tools, now=now
    )
    num_chars = sum(len(message["content"]) for message in conversation.messages)
    if num_chars <= MAX_INLINE_CHARS and conversation.tools is None:
        return tuple(encode())
    return tuple(await asyncio.to_thread(encode))


def chat_sampling(chat: ChatRequest, limit: int) -> SamplingParams:
    params = sampling_params(
        chat, limit=limit, asked=chat.output_token_limit, logprobs=chat.num_top_logprobs
    )
    if chat.offered_tools and chat.parallel_tool_calls is False and not needs_tool_grammar(chat):
        return replace(params, stop=(*params.stop, CLOSE))  # the first call ends the answer
    return params


async def chat_grammar(model: ServedModel, chat: ChatRequest) -> GrammarSpec | None:
    """Compiled already: the engine finds it in the compiler's cache. Raises: GatewayError."""
    if needs_tool_grammar(chat):
        return await _tools_grammar(model, chat)
    if chat.guided_parameter is not None:
        return await compiled(model, partial(guided_spec, chat), param=chat.guided_parameter)
    if chat.grammar_parameter is not None:
        return await compiled(model, partial(_schema_spec, chat), param=chat.grammar_parameter)
    return None


async def _tools_grammar(model: ServedModel, chat: ChatRequest) -> GrammarSpec:
    """A forced call follows its schema; one that no grammar can say is let go where it may be."""
    param = chat.grammar_parameter or "tools"
    schema = None if chat.grammar_parameter is None else json.loads(_answer_schema(chat))
    spec = partial(tool_grammar, chat, answer_schema=schema)
    try:
        return await compiled(model, partial(spec, follows_all=chat.must_call), param=param)
    except GatewayError as err:
        is_strict = all(tool.function.strict for tool in chat.offered_tools)
        if err.code != "invalid_grammar" or is_strict or not chat.must_call:
            raise
        return await compiled(model, partial(spec, follows_all=False), param=param)


def _schema_spec(chat: ChatRequest) -> GrammarSpec:
    return GrammarSpec(kind="json_schema", sources=(_answer_schema(chat),))


def _answer_schema(chat: ChatRequest) -> str:
    if isinstance(chat.response_format, JsonSchemaFormat):
        schema = chat.response_format.json_schema.schema_object
        return json.dumps(schema, ensure_ascii=False)
    return ANY_OBJECT_SCHEMA

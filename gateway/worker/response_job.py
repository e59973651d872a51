"""What does a request for a response mean to the engine?  What the chat means that it is."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from gateway.problems import GatewayError
from gateway.schemas import ChatRequest
from gateway.schemas.responses import (
    ResponseRequest,
    in_words_of_a_response,
    parse_response_request,
    without_implied_strictness,
)
from gateway.worker.chat_job import chat_grammar, chat_prompt, chat_sampling, tool_names
from gateway.worker.inner import InnerRequest
from gateway.worker.job import Job, ServedModel
from gateway.worker.response_writer import ResponseWriter
from runtime import GrammarSpec, RequestRejected


async def response_job(model: ServedModel, request: InnerRequest) -> Job:
    """Raises: GatewayError."""
    asked, chat = parse_response_request(request.body)
    model.require_name(chat.model)
    try:
        prompt = await chat_prompt(model, chat)
        chat, grammar = await _grammar(model, asked, chat)
    except RequestRejected as err:
        raise in_words_of_a_response(GatewayError(err.code, str(err), param=err.param)) from err
    except GatewayError as err:
        raise in_words_of_a_response(err) from err
    writer = ResponseWriter(
        request_id=request.request_id,
        created_s=int(model.unix_s()),
        asked=repeated(asked, chat),
        spelling=model.spelling,
        tool_names=tool_names(chat),
        filler=model.filler if asked.wants_obfuscation else None,
    )
    return Job(
        prompts=[prompt],
        prompt_param="input",
        num_answers=1,
        sampling=partial(chat_sampling, chat),
        grammar=grammar,
        is_streamed=asked.is_streamed,
        is_held_whole=True,
        writer=writer,
    )


async def _grammar(
    model: ServedModel, asked: ResponseRequest, chat: ChatRequest
) -> tuple[ChatRequest, GrammarSpec | None]:
    """Tools are strict unless told; those that nobody called strict only where that is possible.

    The chat that comes back says which they are. Raises: GatewayError.
    """
    try:
        return chat, await chat_grammar(model, chat)
    except GatewayError as err:
        if err.code != "invalid_grammar" or all(tool.strict for tool in asked.tools or ()):
            raise
    loose = without_implied_strictness(asked, chat)
    return loose, await chat_grammar(model, loose)


def repeated(asked: ResponseRequest, chat: ChatRequest) -> Mapping[str, Any]:
    """What a response says of its request, defaults included."""
    choice = asked.tool_choice
    wanted = asked.text.format if asked.text is not None else None
    return {
        "model": asked.model,
        "instructions": asked.instructions,
        "max_output_tokens": asked.max_output_tokens,
        "max_tool_calls": None,
        "metadata": asked.metadata or {},
        "parallel_tool_calls": asked.parallel_tool_calls is not False,
        "temperature": 1.0 if asked.temperature is None else asked.temperature,
        "text": {
            "format": {"type": "text"} if wanted is None else wanted.model_dump(by_alias=True)
        },
        "tool_choice": "auto" if choice is None else _plain(choice),
        "tools": [
            tool.model_dump() | {"strict": told.function.strict}
            for tool, told in zip(asked.tools or (), chat.tools or (), strict=True)
        ],
        "top_logprobs": asked.top_logprobs or 0,
        "top_p": 1.0 if asked.top_p is None else asked.top_p,
    }


def _plain(choice: Any) -> Any:
    return choice if isinstance(choice, str) else choice.model_dump()

"""What does a request for a response mean to the engine?  What the chat means that it is."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from gateway.problems import GatewayError
from gateway.schemas.responses import (
    ResponseRequest,
    in_words_of_a_response,
    parse_response_request,
)
from gateway.worker.chat_job import chat_grammar, chat_prompt, chat_sampling, tool_names
from gateway.worker.inner import InnerRequest
from gateway.worker.job import Job, ServedModel
from gateway.worker.response_writer import ResponseWriter
from runtime import RequestRejected


async def response_job(model: ServedModel, request: InnerRequest) -> Job:
    """Raises: GatewayError."""
    asked, chat = parse_response_request(request.body)
    model.require_name(chat.model)
    writer = ResponseWriter(
        request_id=request.request_id,
        created_s=int(model.unix_s()),
        asked=_repeated(asked),
        spelling=model.spelling,
        tool_names=tool_names(chat),
        filler=model.filler if asked.wants_obfuscation else None,
    )
    try:
        return Job(
            prompts=[await chat_prompt(model, chat)],
            prompt_param="input",
            num_answers=1,
            sampling=partial(chat_sampling, chat),
            grammar=await chat_grammar(model, chat),
            is_streamed=asked.is_streamed,
            writer=writer,
        )
    except RequestRejected as err:
        raise in_words_of_a_response(GatewayError(err.code, str(err), param=err.param)) from err
    except GatewayError as err:
        raise in_words_of_a_response(err) from err


def _repeated(asked: ResponseRequest) -> Mapping[str, Any]:
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
            tool.model_dump() | {"strict": tool.strict is not False} for tool in asked.tools or ()
        ],
        "top_logprobs": asked.top_logprobs or 0,
        "top_p": 1.0 if asked.top_p is None else asked.top_p,
    }


def _plain(choice: Any) -> Any:
    return choice if isinstance(choice, str) else choice.model_dump()

"""What does a request for plain completions mean to the engine?"""

import asyncio
from functools import partial

from gateway.problems import GatewayError
from gateway.schemas.completions import CompletionRequest, parse_completion_request
from gateway.worker.completion_writer import CompletionWriter
from gateway.worker.inner import InnerRequest
from gateway.worker.job import Job, ServedModel, ServiceTokenizer
from gateway.worker.parameters import compiled, guided_spec, sampling_params
from runtime import SamplingParams


async def completion_job(model: ServedModel, request: InnerRequest) -> Job:
    """Raises: GatewayError, RequestRejected."""
    asked = parse_completion_request(request.body)
    model.require_name(asked.model)
    prompts = await asyncio.to_thread(_encode_all, model.tokenizer, asked)
    param = asked.guided_parameter
    writer = CompletionWriter(
        request_id=request.request_id,
        created_s=int(model.unix_s()),
        model=asked.model,
        echoes=_echoes(model.tokenizer, asked),
        spelling=model.spelling,
        filler=model.filler if asked.wants_obfuscation else None,
        tells_usage=asked.wants_usage_chunk,
    )
    return Job(
        prompts=prompts,
        prompt_param="prompt",
        num_answers=asked.num_answers,
        sampling=partial(_sampling, asked),
        grammar=None
        if param is None
        else await compiled(model, partial(guided_spec, asked), param=param),
        is_streamed=asked.is_streamed,
        is_held_whole=not asked.is_streamed,
        writer=writer,
    )


def _encode_all(tokenizer: ServiceTokenizer, asked: CompletionRequest) -> list[tuple[int, ...]]:
    return [
        tuple(tokenizer.encode_prompt(prompt) if isinstance(prompt, str) else prompt)
        for prompt in asked.prompts
    ]


def _echoes(tokenizer: ServiceTokenizer, asked: CompletionRequest) -> list[str]:
    """For each answer."""
    if not asked.echo:
        return [""] * (len(asked.prompts) * asked.num_answers)
    try:
        texts = [one if isinstance(one, str) else tokenizer.decode(one) for one in asked.prompts]
    except IndexError:
        raise GatewayError(
            "invalid_value", "The prompt has an unknown token id.", param="prompt"
        ) from None
    return [text for text in texts for _ in range(asked.num_answers)]


def _sampling(asked: CompletionRequest, limit: int) -> SamplingParams:
    return sampling_params(
        asked, limit=limit, asked=asked.output_token_limit, logprobs=asked.logprobs
    )

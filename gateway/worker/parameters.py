"""What do a request's parameters mean to the engine?"""

import asyncio
from collections.abc import Callable

from gateway.problems import GatewayError
from gateway.schemas.sampling import SamplingFields
from gateway.worker.job import ServedModel
from runtime import GrammarSpec, InvalidGrammar, SamplingParams


def sampling_params(
    fields: SamplingFields, *, limit: int, asked: int | None, logprobs: int | None
) -> SamplingParams:
    """``limit`` is the room that the context leaves, ``asked`` the client's own bound.

    Raises: runtime.InvalidSampling.
    """
    return SamplingParams(
        max_tokens=limit if asked is None else min(asked, limit),
        temperature=1.0 if fields.temperature is None else fields.temperature,
        top_p=1.0 if fields.top_p is None else fields.top_p,
        top_k=fields.top_k or 0,
        min_p=fields.min_p or 0.0,
        seed=fields.seed,
        logit_bias={int(token_id): bias for token_id, bias in (fields.logit_bias or {}).items()},
        presence_penalty=fields.presence_penalty or 0.0,
        frequency_penalty=fields.frequency_penalty or 0.0,
        repetition_penalty=(
            1.0 if fields.repetition_penalty is None else fields.repetition_penalty
        ),
        logprobs=logprobs,
        stop=fields.stop_strings(),
        ignore_eos=bool(fields.ignore_eos),
    )


def guided_spec(fields: SamplingFields) -> GrammarSpec:
    """Of a request with a ``guided_parameter``. Raises: runtime.InvalidGrammar, too large."""
    if fields.guided_regex is not None:
        return GrammarSpec(kind="regex", sources=(fields.guided_regex,))
    return GrammarSpec(kind="choice", sources=tuple(fields.guided_choice or ()))


async def compiled(
    model: ServedModel, make: Callable[[], GrammarSpec], *, param: str
) -> GrammarSpec:
    """Compiled here, in a thread: the engine finds it in the compiler's cache.

    Raises: GatewayError `invalid_grammar`.
    """
    if model.grammars is None:
        raise GatewayError("unsupported_parameter", "This worker has no grammars.", param=param)
    try:
        spec = make()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(model.grammar_thread, model.grammars.compile, spec)
    except InvalidGrammar as err:
        raise GatewayError(err.code, str(err), param=param) from err
    return spec

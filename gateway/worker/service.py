"""What does the worker answer inside the sealed channel?  OpenAI's endpoints, with one model.

The request was validated at the edge and is validated again here: this is the side that holds
the model, and any client that seals to its key can reach it.
"""

import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from gateway import sse
from gateway.calls import MAX_ANSWER_BYTES
from gateway.chat_call import CHAT_PATH
from gateway.completion_call import COMPLETIONS_PATH
from gateway.direct import DirectSlot
from gateway.embedding_call import EMBEDDINGS_PATH
from gateway.facts import EngineFacts
from gateway.problems import GatewayError
from gateway.response_call import RESPONSES_PATH
from gateway.worker.bridge import EngineBridge
from gateway.worker.chat_job import chat_job
from gateway.worker.completion_job import completion_job
from gateway.worker.embeddings import embed
from gateway.worker.generation import Generation
from gateway.worker.group import GenerationGroup
from gateway.worker.inner import (
    MODELS_PATH,
    InnerRequest,
    InnerResponse,
    error_response,
    json_response,
    model_list,
    require_endpoint,
)
from gateway.worker.job import Job, ServedModel, WrittenAnswer
from gateway.worker.outcome import Outcome, usage_of
from gateway.worker.response_job import response_job
from runtime import Delta, GenerationRequest, RequestRejected, SamplingParams, TokenLogprobs
from runtime.sampling import SEED_BITS

JobMaker = Callable[[ServedModel, InnerRequest], Awaitable[Job]]

_JOBS: Final[Mapping[str, JobMaker]] = MappingProxyType(
    {
        CHAT_PATH: chat_job,
        COMPLETIONS_PATH: completion_job,
        RESPONSES_PATH: response_job,
    }
)
_TENANT_LABEL: Final = b"starshade/engine-tenant/v1"
_TENANT_CHARS: Final = 32
LOGPROB_BYTES: Final = 128  # of one token that is shown with its probability; most take less


class EngineService:
    """`gateway.worker.inner.InnerService` with one loaded model."""

    def __init__(
        self,
        model: ServedModel,
        *,
        bridge: EngineBridge,
        clock_ns: Callable[[], int],
        report: Callable[[EngineFacts], None],
    ) -> None:
        self._model = model
        self._bridge = bridge
        self._clock_ns = clock_ns
        self._report = report
        self._created_s = int(model.unix_s())

    async def respond(self, request: InnerRequest) -> InnerResponse:
        """Never raises for a bad request: errors are responses in OpenAI's shape."""
        try:
            return await self._answer(request)
        except GatewayError as err:
            return error_response(err)
        except RequestRejected as err:
            return error_response(GatewayError(err.code, str(err), param=err.param))

    async def _answer(self, request: InnerRequest) -> InnerResponse:
        require_endpoint(request)
        if request.path == MODELS_PATH:
            return json_response(200, model_list([self._model.name], created_s=self._created_s))
        if request.path == EMBEDDINGS_PATH:
            return await embed(self._model, request)
        job = await _JOBS[request.path](self._model, request)
        try:
            return await self._run(job, request)
        except GatewayError as err:  # the engine calls every prompt "messages"
            param = job.prompt_param if err.param == "messages" else err.param
            raise GatewayError(err.code, err.message, param=param) from err

    async def _run(self, job: Job, request: InnerRequest) -> InnerResponse:
        group = GenerationGroup(self._generations(job, request))
        num = len(job.prompts) * job.num_answers
        outcomes = [Outcome(arrived_ns=self._clock_ns()) for _ in range(num)]
        if job.is_streamed:
            slot = DirectSlot()
            body = self._events(job, group, outcomes, request, slot)
            await anext(body)  # runs to the point where the engine has taken the request
            return InnerResponse(status=200, media_type=sse.MEDIA_TYPE, body=body, slot=slot)
        return await self._whole(job, group, outcomes, request)

    def _generations(self, job: Job, request: InnerRequest) -> list[Generation]:
        made: list[Generation] = []
        for prompt in job.prompts:
            sampling = _fitting(job.sampling(self._room(prompt, job.prompt_param)), job)
            for index in range(job.num_answers):
                number = len(made)
                made.append(
                    self._bridge.generate(
                        GenerationRequest(
                            request_id=f"{request.request_id}-{number}"
                            if number
                            else request.request_id,
                            prompt_token_ids=prompt,
                            sampling=_sampling_of(sampling, index),
                            grammar=job.grammar,
                            cache_salt=request.cache_salt,
                            priority=request.priority,
                            tenant=_tenant(request.cache_salt),
                            arrival_ns=self._clock_ns(),
                        )
                    )
                )
        return made

    def _room(self, prompt: Sequence[int], param: str) -> int:
        limit = self._model.max_context_tokens - len(prompt)
        if limit < 1:
            raise GatewayError(
                "context_length_exceeded",
                f"The prompt has {len(prompt)} tokens; the model's context holds "
                f"{self._model.max_context_tokens}, the answer included.",
                param=param,
            )
        return limit

    async def _events(
        self,
        job: Job,
        group: GenerationGroup,
        outcomes: Sequence[Outcome],
        request: InnerRequest,
        slot: DirectSlot,
    ) -> AsyncGenerator[bytes, None]:
        """First an empty item once the engine accepted, then events until the writer's last."""
        shown, writer = self._model.spelling.shown, job.writer

        def take(index: int, delta: Delta) -> bool:
            direct = slot.direct
            if direct is None or delta.finish_reason is not None or not direct.is_ready():
                return False
            if data := writer.delta(index, delta.text, shown(delta)):
                direct.write(data)
            return True

        try:
            async with group:
                group.divert(take)
                yield b""
                yield writer.start()
                try:
                    async for index, delta in group.deltas():
                        outcomes[index].take(delta)
                        if data := writer.delta(index, delta.text, shown(delta)):
                            yield data
                        if delta.finish_reason is not None:
                            yield writer.finish(index, outcomes[index].public_reason())
                    yield writer.end(usage_of(outcomes, num_answers=job.num_answers))
                except GatewayError as err:  # the status line is out: the error is an event
                    _fail(outcomes, err)
                    yield writer.error(err)
        except GatewayError as err:
            _fail(outcomes, err)
            raise
        finally:
            self._report_all(outcomes, request)

    async def _whole(
        self, job: Job, group: GenerationGroup, outcomes: Sequence[Outcome], request: InnerRequest
    ) -> InnerResponse:
        shown = self._model.spelling.shown
        texts: list[list[str]] = [[] for _ in outcomes]
        logprobs: list[list[TokenLogprobs]] = [[] for _ in outcomes]
        try:
            async with group:
                async for index, delta in group.deltas():
                    outcomes[index].take(delta)
                    texts[index].append(delta.text)
                    logprobs[index] += shown(delta)
            reasons = [outcome.public_reason() for outcome in outcomes]
        except GatewayError as err:
            _fail(outcomes, err)
            raise
        finally:
            self._report_all(outcomes, request)
        answers = [
            WrittenAnswer(text="".join(parts), reason=reason, logprobs=found)
            for parts, reason, found in zip(texts, reasons, logprobs, strict=True)
        ]
        usage = usage_of(outcomes, num_answers=job.num_answers)
        return json_response(200, job.writer.whole(answers, usage))

    def _report_all(self, outcomes: Sequence[Outcome], request: InnerRequest) -> None:
        ended_ns = self._clock_ns()
        for outcome in outcomes:
            self._report(outcome.facts(request, ended_ns=ended_ns))


def _fail(outcomes: Sequence[Outcome], error: GatewayError) -> None:
    """Those that have ended well have, whatever became of the others."""
    for outcome in outcomes:
        if outcome.timing is None or outcome.reason not in {"stop", "length"}:
            outcome.error_code = error.code


def _fitting(sampling: SamplingParams, job: Job) -> SamplingParams:
    """With log probabilities an answer that is held whole may end before its context is full."""
    if sampling.logprobs is None or not job.is_held_whole:
        return sampling
    num_shown = (1 + sampling.logprobs) * len(job.prompts) * job.num_answers
    most = max(1, MAX_ANSWER_BYTES // (LOGPROB_BYTES * num_shown))
    return replace(sampling, max_tokens=min(sampling.max_tokens, most))


def _sampling_of(sampling: SamplingParams, index: int) -> SamplingParams:
    """Several answers to one prompt differ: each has the seed behind the one before."""
    if sampling.seed is None or not index:
        return sampling
    half = 1 << (SEED_BITS - 1)
    return replace(sampling, seed=(sampling.seed + index + half) % (2 * half) - half)


def _tenant(cache_salt: bytes) -> str:
    """Who takes turns with others in the engine: one name a salt, that does not tell the salt."""
    return hashlib.sha256(_TENANT_LABEL + cache_salt).hexdigest()[:_TENANT_CHARS]

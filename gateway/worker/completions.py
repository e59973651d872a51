"""What does the worker answer inside the sealed channel?  OpenAI's chat completions and models.

The request was validated at the edge and is validated again here: this is the side that holds
the model, and any client that seals to its key can reach it.
"""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from gateway import sse
from gateway.observe import EngineFacts
from gateway.problems import GatewayError, openai_body
from gateway.schemas import ChatRequest, parse_chat_request
from gateway.worker.answer import Answer
from gateway.worker.bridge import EngineBridge, Generation
from gateway.worker.inner import InnerRequest, InnerResponse, error_response, json_response
from gateway.worker.parameters import grammar_parameter, grammar_spec, sampling_params
from runtime import (
    Delta,
    GenerationRequest,
    GrammarCompiler,
    GrammarSpec,
    InvalidGrammar,
    RequestRejected,
    SequenceTiming,
    TokenLogprobs,
)

MAX_INLINE_CHARS: Final = 16_384  # a longer prompt is tokenized off the event loop
_TENANT_LABEL: Final = b"starshade/engine-tenant/v1"
_TENANT_CHARS: Final = 32
_PUBLIC_REASONS: Final = frozenset({"stop", "length"})


class ChatTokenizer(Protocol):
    """The part of a tokenizer that prompts and log probabilities need."""

    @property
    def eos_token_ids(self) -> Set[int]: ...

    @property
    def token_bytes(self) -> Sequence[bytes]: ...

    def encode_chat(
        self, messages: Sequence[Mapping[str, str]], *, now: datetime | None = None
    ) -> list[int]:
        """``now`` is what a template's date shows. Raises: runtime.errors.InvalidPrompt."""
        ...


class ChatService:
    """Answers inner requests with one loaded model."""

    def __init__(
        self,
        *,
        tokenizer: ChatTokenizer,
        model_name: str,
        max_context_tokens: int,
        bridge: EngineBridge,
        clock_ns: Callable[[], int],
        unix_s: Callable[[], float],
        report: Callable[[EngineFacts], None],
        grammars: GrammarCompiler | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._model_name = model_name
        self._max_context_tokens = max_context_tokens
        self._bridge = bridge
        self._clock_ns = clock_ns
        self._unix_s = unix_s
        self._report = report
        self._grammars = grammars
        self._created_s = int(unix_s())

    async def respond(self, request: InnerRequest) -> InnerResponse:
        """Never raises for a bad request: errors are responses in OpenAI's shape."""
        try:
            match request.method, request.path:
                case "GET", "/v1/models":
                    return json_response(200, self._model_list())
                case "POST", "/v1/chat/completions":
                    return await self._chat(request, parse_chat_request(request.body))
                case _, "/v1/models" | "/v1/chat/completions":
                    raise GatewayError("method_not_allowed", "This path has another method.")
                case _:
                    raise GatewayError("unsupported_endpoint", "There is no such endpoint.")
        except GatewayError as err:
            return error_response(err)
        except RequestRejected as err:
            return error_response(GatewayError(err.code, str(err), param=err.param))

    async def _chat(self, request: InnerRequest, chat: ChatRequest) -> InnerResponse:
        if chat.model != self._model_name:
            raise GatewayError("model_not_found", "This model is not served here.", param="model")
        prompt_token_ids = await self._encode(chat)
        limit = self._max_context_tokens - len(prompt_token_ids)
        if limit < 1:
            raise GatewayError(
                "context_length_exceeded",
                f"The prompt has {len(prompt_token_ids)} tokens; the model's context holds "
                f"{self._max_context_tokens}, the answer included.",
                param="messages",
            )
        generation = self._bridge.generate(
            GenerationRequest(
                request_id=request.request_id,
                prompt_token_ids=prompt_token_ids,
                sampling=sampling_params(chat, limit=limit),
                grammar=await self._grammar(chat),
                cache_salt=request.cache_salt,
                priority=request.priority,
                tenant=_tenant(request.cache_salt),
                arrival_ns=self._clock_ns(),
            )
        )
        answer = Answer(
            id=f"chatcmpl-{request.request_id}",
            created_s=int(self._unix_s()),
            model=chat.model,
            token_bytes=self._tokenizer.token_bytes,
        )
        if chat.is_streamed:
            body = self._events(generation, answer, request, usage=chat.wants_usage_chunk)
            await anext(body)  # runs to the point where the engine has taken the request
            return InnerResponse(status=200, media_type=sse.MEDIA_TYPE, body=body)
        return await self._whole(generation, answer, request)

    async def _encode(self, chat: ChatRequest) -> tuple[int, ...]:
        messages = [{"role": m.template_role(), "content": m.text()} for m in chat.messages]
        now = datetime.fromtimestamp(self._unix_s(), UTC)
        if sum(len(message["content"]) for message in messages) <= MAX_INLINE_CHARS:
            return tuple(self._tokenizer.encode_chat(messages, now=now))
        return tuple(await asyncio.to_thread(self._tokenizer.encode_chat, messages, now=now))

    async def _events(
        self, generation: Generation, answer: Answer, request: InnerRequest, *, usage: bool
    ) -> AsyncGenerator[bytes, None]:
        """First an empty item once the engine accepted, then SSE events until `[DONE]`."""
        outcome = _Outcome(arrived_ns=self._clock_ns())
        try:
            async with generation:
                yield b""
                yield answer.role_chunk()
                try:
                    async for delta in generation.deltas():
                        outcome.take(delta)
                        logprobs = self._shown(delta)
                        if delta.text or logprobs:
                            yield answer.content_chunk(delta.text, logprobs)
                    yield answer.finish_chunk(outcome.public_reason())
                    if usage:
                        yield answer.usage_chunk(outcome.usage())
                    yield sse.DONE
                except GatewayError as err:  # the status line is out: the error is an event
                    outcome.error_code = err.code
                    yield sse.encode_json(openai_body(err))
        except GatewayError as err:
            outcome.error_code = err.code
            raise
        finally:
            self._report(outcome.facts(request, ended_ns=self._clock_ns()))

    async def _whole(
        self, generation: Generation, answer: Answer, request: InnerRequest
    ) -> InnerResponse:
        outcome, parts = _Outcome(arrived_ns=self._clock_ns()), list[str]()
        logprobs: list[TokenLogprobs] = []
        try:
            async with generation:
                async for delta in generation.deltas():
                    outcome.take(delta)
                    parts.append(delta.text)
                    logprobs += self._shown(delta)
            reason = outcome.public_reason()
        except GatewayError as err:
            outcome.error_code = err.code
            raise
        finally:
            self._report(outcome.facts(request, ended_ns=self._clock_ns()))
        return json_response(200, answer.whole("".join(parts), reason, outcome.usage(), logprobs))

    async def _grammar(self, chat: ChatRequest) -> GrammarSpec | None:
        """Compiled here, in a thread: the engine finds it in the compiler's cache.

        Raises: GatewayError `invalid_grammar`.
        """
        param = grammar_parameter(chat)
        if param is None:
            return None
        if self._grammars is None:
            raise GatewayError("unsupported_parameter", "This worker has no grammars.", param=param)
        try:
            spec = grammar_spec(chat)
            await asyncio.to_thread(self._grammars.compile, spec)
        except InvalidGrammar as err:
            raise GatewayError(err.code, str(err), param=param) from err
        return spec

    def _shown(self, delta: Delta) -> Sequence[TokenLogprobs]:
        """Without the token that ended the output, which is no part of the answer."""
        is_ended = delta.finish_reason == "stop" and delta.logprobs
        if is_ended and delta.logprobs[-1].token_id in self._tokenizer.eos_token_ids:
            return delta.logprobs[:-1]
        return delta.logprobs

    def _model_list(self) -> Mapping[str, Any]:
        entry = {
            "id": self._model_name,
            "object": "model",
            "created": self._created_s,
            "owned_by": "starshade",
        }
        return {"object": "list", "data": [entry]}


@dataclass(slots=True)
class _Outcome:
    """How a generation ended, as far as it got."""

    arrived_ns: int
    reason: str | None = None
    timing: SequenceTiming | None = None
    error_code: str | None = None

    def take(self, delta: Delta) -> None:
        if delta.finish_reason is not None:
            self.reason, self.timing = delta.finish_reason, delta.timing

    def public_reason(self) -> str:
        """Raises: GatewayError when the engine gave the generation up."""
        if self.reason not in _PUBLIC_REASONS or self.reason is None:
            raise GatewayError("generation_failed", "The engine gave this request up.")
        return self.reason

    def usage(self) -> Mapping[str, Any]:
        timing = self.timing
        if timing is None:
            raise GatewayError("generation_failed", "The engine reported no usage.")
        return {
            "prompt_tokens": timing.prompt_tokens,
            "completion_tokens": timing.output_tokens,
            "total_tokens": timing.prompt_tokens + timing.output_tokens,
            "prompt_tokens_details": {"cached_tokens": timing.cached_tokens},
        }

    def facts(self, request: InnerRequest, *, ended_ns: int) -> EngineFacts:
        is_unfinished = self.reason is None and self.error_code is None
        return EngineFacts(
            request_id=request.request_id,
            traceparent=request.traceparent,
            arrived_ns=self.arrived_ns,
            ended_ns=ended_ns,
            finish_reason=self.reason,
            error_code="client_disconnected" if is_unfinished else self.error_code,
            timing=self.timing,
        )


def _tenant(cache_salt: bytes) -> str:
    """Who takes turns with others in the engine: one name a salt, that does not tell the salt."""
    return hashlib.sha256(_TENANT_LABEL + cache_salt).hexdigest()[:_TENANT_CHARS]

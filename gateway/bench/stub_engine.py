"""Which engine costs next to nothing?  One that says the same word at a fixed pace.

What is measured around it is the gateway's, the worker's and the wire's.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from gateway.config import StarshadeConfig
from gateway.worker.wiring import LoadedEngine
from runtime import EngineObserver, GenerationRequest, SequenceTiming
from runtime.live import Advance

MODEL: Final = "stub"
WORD: Final = " word"
_MAX_NAP_S: Final = 0.001  # a request that comes meanwhile waits no longer
_CONTEXT_TOKENS: Final = 1 << 20
_NS_PER_S: Final = 1_000_000_000


@dataclass(slots=True)
class _Running:
    request: GenerationRequest
    next_ns: int
    first_ns: int | None = None
    num_tokens: int = 0


class StubEngine:
    """`gateway.worker.bridge.SteppedEngine`: the first token at once, each next one in turn."""

    def __init__(self, *, itl_s: float, clock_ns: Callable[[], int]) -> None:
        self._itl_ns = round(itl_s * _NS_PER_S)
        self._clock_ns = clock_ns
        self._running: dict[str, _Running] = {}

    def add(self, request: GenerationRequest) -> None:
        self._running[request.request_id] = _Running(request, self._clock_ns())

    def abort(self, request_id: str) -> None:
        self._running.pop(request_id, None)

    def has_work(self) -> bool:
        return bool(self._running)

    def advance(self) -> list[Advance]:
        now_ns = self._clock_ns()
        due = [one for one in self._running.values() if one.next_ns <= now_ns]
        if not due:
            wait_ns = min(one.next_ns for one in self._running.values()) - now_ns
            time.sleep(min(wait_ns / _NS_PER_S, _MAX_NAP_S))
            return []
        return [self._token(one, now_ns) for one in due]

    def _token(self, one: _Running, now_ns: int) -> Advance:
        one.num_tokens += 1
        one.first_ns = one.first_ns or now_ns
        one.next_ns += self._itl_ns
        request = one.request
        if one.num_tokens < request.sampling.max_tokens:
            return Advance(request_id=request.request_id, token_ids=(1,), text=WORD)
        del self._running[request.request_id]
        timing = SequenceTiming(
            queued_ns=request.arrival_ns,
            first_scheduled_ns=request.arrival_ns,
            first_token_ns=one.first_ns,
            finished_ns=now_ns,
            prompt_tokens=len(request.prompt_token_ids),
            cached_tokens=0,
            output_tokens=one.num_tokens,
        )
        return Advance(
            request_id=request.request_id,
            token_ids=(1,),
            text=WORD,
            finish_reason="length",
            timing=timing,
        )


class StubTokenizer:
    """`gateway.worker.job.ServiceTokenizer`: one token a message."""

    eos_token_ids: frozenset[int] = frozenset({0})
    token_bytes: Sequence[bytes] = (b"", WORD.encode())
    writes_tool_calls = False

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        now: datetime | None = None,
    ) -> list[int]:
        return [1] * len(messages)

    def encode_prompt(self, text: str) -> list[int]:
        return [1]

    def encode_document(self, text: str) -> list[int]:
        return [1]

    def decode(self, token_ids: Sequence[int]) -> str:
        return WORD * len(token_ids)


def stub_loader(
    *, itl_s: float
) -> Callable[[StarshadeConfig, Callable[[float], None], EngineObserver], LoadedEngine]:
    """In place of `load_model_engine`."""

    def load(
        _config: StarshadeConfig,
        _on_progress: Callable[[float], None],
        _observer: EngineObserver,
    ) -> LoadedEngine:
        return LoadedEngine(
            engine=StubEngine(itl_s=itl_s, clock_ns=time.monotonic_ns),
            tokenizer=StubTokenizer(),
            max_context_tokens=_CONTEXT_TOKENS,
            weights_sha256="00" * 32,
        )

    return load

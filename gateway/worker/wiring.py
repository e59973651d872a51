"""How is the worker put together?  Its composition root: config in, app out.

What the gateway alone needs, its database above all, is not imported: a worker starts sooner.
"""

import asyncio
import functools
import gc
import os
import secrets
import sys
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from opentelemetry.sdk.trace.export import SpanExporter

from attestation import collect
from attestation.channel import KEM_XWING, ChunkLimits, KeyOffer
from attestation.policy import AppraisalPolicy
from gateway.channel_keys import ChannelKeys
from gateway.config import StarshadeConfig
from gateway.faults import os_error_text
from gateway.models import ModelError, model_file, require_named_weights, served_name
from gateway.problems import GatewayError
from gateway.process import (
    GuestOpener,
    configured_policy,
    mode_of,
    new_request_id,
    own_drain_s,
    utc_now,
)
from gateway.worker.app import WorkerApp, WorkerState
from gateway.worker.bridge import EngineBridge, SteppedEngine
from gateway.worker.job import ServedModel, ServiceTokenizer
from gateway.worker.node_receipts import NodeReceipts
from gateway.worker.obfuscation import random_filler
from gateway.worker.ready import ready_worker, worker_tee, worker_tracing
from gateway.worker.service import EngineService
from runtime import (
    Engine,
    EngineConfig,
    EngineObserver,
    GrammarCompiler,
    RuntimeFault,
    StepStats,
)
from runtime.embedding import TextEmbedder

_SEED_BITS: Final = 64
RECEIPT_ID_BYTES: Final = 16
_MAX_ENCAPSULATED_BYTES: Final = 1 << 30
_OFFERS_TO_CLIENTS: Final = (KeyOffer(), KeyOffer(kem_id=KEM_XWING))
_COMPILER_NICENESS: Final = 5  # more than the rest: a quarter of a core when all are taken
_LAST_NICENESS: Final = 19
_MAX_YIELD_S: Final = 0.005  # [docs/decisions/0011]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedEngine:
    """An engine with what is served around it."""

    engine: SteppedEngine
    tokenizer: ServiceTokenizer
    max_context_tokens: int
    weights_sha256: str
    grammars: GrammarCompiler | None = None
    embedder: TextEmbedder | None = None


EngineLoader = Callable[[StarshadeConfig, Callable[[float], None], EngineObserver], LoadedEngine]


def build_worker_app(
    config: StarshadeConfig,
    *,
    exporter: SpanExporter | None = None,
    load_engine: EngineLoader | None = None,
    open_guest: GuestOpener = collect.open_tee,
) -> WorkerApp:
    """The worker's ASGI app; its model loads in a thread after start-up.

    `exporter` takes the place of the configured endpoint, `load_engine` of the model file,
    `open_guest` of this machine's TEE.

    Raises: attestation.errors.PolicyError.
    """
    policy = configured_policy(config)
    is_blind_edge = mode_of(config) == "pass-through"
    state = WorkerState(
        keys=ChannelKeys(
            clock_s=time.monotonic,
            utc_now=utc_now,
            offers=_OFFERS_TO_CLIENTS if is_blind_edge else (KeyOffer(),),
            period_s=config.worker.key_rotation_s,
        ),
        limits=ChunkLimits(
            max_body_bytes=min(4 * config.gateway.max_body_bytes, _MAX_ENCAPSULATED_BYTES)
        ),
        is_blind_edge=is_blind_edge,
        rng=os.urandom,
        new_request_id=new_request_id,
        receipts=_node_receipts(config, policy) if is_blind_edge else None,
    )
    if config.worker.upstream is not None:
        from gateway.worker.upstream_wiring import load_upstream  # and an HTTP client

        load = functools.partial(load_upstream, config, policy, exporter, open_guest)
    else:
        load = functools.partial(
            _load_worker, config, policy, load_engine or load_model_engine, exporter, open_guest
        )
    return WorkerApp(state, drain_s=own_drain_s(config.gateway.drain_s), load=load)


def _node_receipts(config: StarshadeConfig, policy: AppraisalPolicy) -> NodeReceipts:
    return NodeReceipts(
        key=Ed25519PrivateKey.generate(),
        replica=config.worker.id,
        policy_sha256=policy.sha256,
        utc_now=utc_now,
        monotonic_ns=time.monotonic_ns,
        new_id=lambda: secrets.token_hex(RECEIPT_ID_BYTES),
    )


async def _load_worker(
    config: StarshadeConfig,
    policy: AppraisalPolicy,
    load_engine: EngineLoader,
    exporter: SpanExporter | None,
    open_guest: GuestOpener,
    state: WorkerState,
) -> AsyncGenerator[None, None]:
    """1. The TEE, in a thread. 2. The model, in a thread. 3. The engine and its thread. 4. Ready.

    Closing the generator stops the engine's thread and flushes the spans.
    """
    tee = await worker_tee(config, policy, open_guest)  # 1
    stats = _LatestStep()

    def on_progress(ratio: float) -> None:
        state.progress = ratio

    try:
        loaded = await asyncio.to_thread(load_engine, config, on_progress, stats)  # 2
    except (RuntimeFault, ModelError) as err:
        raise GatewayError(err.code, f"The model cannot be served: {err}") from err
    except OSError as err:
        raise GatewayError(
            "model_file_unusable", f"Cannot read the model: {os_error_text(err)}"
        ) from err
    # What a model brings stays; a collection that looked through it all would hold up a step.
    gc.collect()
    gc.freeze()
    bridge = EngineBridge(  # 3
        loaded.engine,
        loop=asyncio.get_running_loop(),
        max_yield_s=0.0 if _leaves_a_core(config.worker.threads) else _MAX_YIELD_S,
    )
    bridge.start()
    tracing = worker_tracing(config, exporter)
    model_name = served_name(config.worker.model)
    grammar_thread = compiler_thread()
    service = EngineService(
        ServedModel(
            name=model_name,
            tokenizer=loaded.tokenizer,
            max_context_tokens=loaded.max_context_tokens,
            grammars=loaded.grammars,
            embedder=loaded.embedder,
            grammar_thread=grammar_thread,
            unix_s=time.time,  # noqa: TID251 - the process edge
            filler=random_filler(os.urandom),
        ),
        bridge=bridge,
        clock_ns=tracing.clocks.monotonic_ns,
        report=tracing.generated,
    )
    state.ready = ready_worker(  # 4
        config,
        policy,
        state,
        tee=tee,
        model_name=model_name,
        weights_sha256=loaded.weights_sha256,
        service=service,
        bridge=bridge,
        latest_step=lambda: stats.latest,
        utc_now=utc_now,
    )
    try:
        yield
    finally:
        gc.unfreeze()
        grammar_thread.shutdown(wait=False, cancel_futures=True)
        await bridge.stop()
        await asyncio.to_thread(tracing.provider.shutdown)


class _LatestStep:
    """Keeps the engine's last step; written by its thread, read by others."""

    def __init__(self) -> None:
        self.latest: StepStats | None = None

    def on_step(self, stats: StepStats) -> None:
        self.latest = stats


def load_model_engine(
    config: StarshadeConfig, on_progress: Callable[[float], None], observer: EngineObserver
) -> LoadedEngine:
    """Blocks for as long as the model takes. Raises: RuntimeFault, ModelError, OSError."""
    from runtime.backend import BackendSettings, load_backend
    from runtime.grammar_llguidance import LlguidanceCompiler

    settings = config.engine
    model = load_backend(
        model_file(config.worker.model, config.paths),
        BackendSettings(
            num_threads=config.worker.threads,
            quantize=config.worker.quantize,
            precision=config.worker.precision,
            kv_dtype=config.worker.kv_dtype,
            block_size=settings.block_size,
            max_batch_tokens=settings.max_batch_tokens,
            max_context_tokens=settings.max_context_tokens,
        ),
        on_progress,
    )
    require_named_weights(config.worker.model, model.weights_sha256)
    num_blocks = model.count_blocks(settings.kv_cache_bytes)
    runner = model.new_runner(num_blocks)
    grammars = LlguidanceCompiler(model.tokenizer)
    engine = Engine(
        runner=runner,
        sampler=model.sampler,
        tokenizer=model.tokenizer,
        config=EngineConfig(
            num_blocks=num_blocks,
            block_size=settings.block_size,
            max_batch_tokens=settings.max_batch_tokens,
            max_sequences=settings.max_sequences,
            itl_target_s=settings.itl_target_ms / 1000,
            batch_invariant=settings.batch_invariant,
            max_draft_tokens=settings.max_draft_tokens,
            max_draft_rows=settings.max_draft_rows,
            model_sha256=model.weights_sha256,
        ),
        observer=observer,
        clock_ns=time.monotonic_ns,
        fresh_seed=_fresh_seed,
        grammars=grammars,
    )
    return LoadedEngine(
        engine=engine,
        tokenizer=model.tokenizer,
        grammars=grammars,
        embedder=model.embedder,
        max_context_tokens=engine.max_context_tokens,
        weights_sha256=model.weights_sha256,
    )


def _fresh_seed() -> int:
    return secrets.randbits(_SEED_BITS)


def compiler_thread() -> ThreadPoolExecutor:
    """Grammars are compiled one at a time, and the kernels' threads go before."""
    return ThreadPoolExecutor(1, "grammar-compiler", initializer=_step_back)


def _step_back() -> None:
    if sys.platform == "linux":  # where it is of this thread alone [setpriority(2), C library]
        niceness = os.getpriority(os.PRIO_PROCESS, 0) + _COMPILER_NICENESS
        os.setpriority(os.PRIO_PROCESS, 0, min(niceness, _LAST_NICENESS))


def _leaves_a_core(threads: int) -> bool:
    return 0 < threads < len(os.sched_getaffinity(0))

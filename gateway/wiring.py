"""How are the two inference processes put together?  The composition root: config in, app out.

The only module here that reads clocks and the system's randomness and hands them on.
"""

import asyncio
import datetime as dt
import functools
import hashlib
import logging
import os
import random
import secrets
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter

from attestation import collect
from attestation.anchors import load_anchors
from attestation.cache import VerifiedCache
from attestation.channel import ChunkLimits, KeyConfig, ServerKey
from attestation.evidence import QuotingTee
from attestation.keyset import OhttpKey, TlsKey
from attestation.policy import AppraisalPolicy, load_policy
from gateway.app import GatewayApp
from gateway.attest import LiveAttestation
from gateway.auth import Authenticator
from gateway.collateral import Completer
from gateway.config import StarshadeConfig
from gateway.db import ApiKeyStore, migrate, open_engine
from gateway.drain import Drain
from gateway.faults import os_error_text
from gateway.files import locked, make_private_dir, write_atomic
from gateway.limits import RequestLimits
from gateway.models import ModelError, model_file, require_named_weights
from gateway.observe import Clocks, Tracing
from gateway.problems import GatewayError
from gateway.relay import Relay
from gateway.services import Services
from gateway.worker.app import ReadyWorker, WorkerApp, WorkerState
from gateway.worker.attester import AttestedFacts, Attester, open_tee
from gateway.worker.bridge import EngineBridge, SteppedEngine
from gateway.worker.completions import ChatService, ChatTokenizer
from gateway.worker.replay import ReplayGuard
from gateway.workers import WorkerDirectory
from runtime import Engine, EngineConfig, EngineObserver, RuntimeFault, StepStats
from telemetry import semconv
from telemetry.tracing import build_provider

_log = logging.getLogger(__name__)

SALT_BYTES: Final = 32
_SEED_BITS: Final = 64
_GATEWAY_ID: Final = "gateway"
_MAX_ENCAPSULATED_BYTES: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedEngine:
    """An engine with what is served around it."""

    engine: SteppedEngine
    tokenizer: ChatTokenizer
    max_context_tokens: int
    weights_sha256: str


GuestOpener = Callable[[], QuotingTee]
EngineLoader = Callable[[StarshadeConfig, Callable[[float], None], EngineObserver], LoadedEngine]


def build_gateway_app(
    config: StarshadeConfig,
    *,
    exporter: SpanExporter | None = None,
    open_guest: GuestOpener = collect.open_tee,
) -> GatewayApp:
    """The gateway's ASGI app; opens and migrates its database.

    `exporter` takes the place of the configured endpoint, `open_guest` of this machine's TEE.

    Raises: attestation.errors.PolicyError, OSError, sqlalchemy errors.
    """
    policy = load_policy(_policy_source(config.policy))
    clocks = _clocks()
    engine = open_engine(config.database_url)
    migrate(engine)
    provider = _provider(config, semconv.SERVICE_GATEWAY, _GATEWAY_ID, exporter)
    tracing = Tracing(provider=provider, clocks=clocks, instance_id=_GATEWAY_ID)
    drain = Drain(drain_s=_own_drain_s(config.gateway.drain_s))
    verified = VerifiedCache()
    directory = WorkerDirectory(
        [
            (node_id, _attestation(address, config, policy, verified, clocks))
            for address, node_id in node_ids(config.gateway.workers).items()
        ],
        utc_now=_utc_now,
        clocks=clocks,
        jitter=random.random,  # noqa: TID251 - the process edge
        report=tracing.attested,
    )
    relay = Relay(
        directory=directory,
        drain=drain,
        salt_secret=_salt_secret(config),
        deadline_s=config.gateway.request_deadline_s,
        silence_s=config.gateway.worker_silence_s,
        rng=os.urandom,
        utc_now=_utc_now,
        clocks=clocks,
        log_fault=lambda description: _log.error("a stream failed: %s", description),
    )
    services = Services(
        authenticator=Authenticator(ApiKeyStore(engine), clock_s=time.monotonic),
        directory=directory,
        relay=relay,
        tracing=tracing,
        drain=drain,
        attester=_gateway_attester(config, policy, directory, open_guest),
        utc_now=_utc_now,
        new_request_id=_new_request_id,
    )

    async def on_stopped() -> None:
        await asyncio.to_thread(provider.shutdown)
        engine.dispose()

    limits = RequestLimits(
        max_body_bytes=config.gateway.max_body_bytes,
        max_concurrent_streams=config.gateway.max_concurrent_streams,
    )
    return GatewayApp(services, limits=limits, on_stopped=on_stopped)


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
    policy = load_policy(_policy_source(config.policy))
    state = WorkerState(
        key=ServerKey.generate(key_id=secrets.randbelow(256)),
        limits=ChunkLimits(
            max_body_bytes=min(4 * config.gateway.max_body_bytes, _MAX_ENCAPSULATED_BYTES)
        ),
        replay=ReplayGuard(),
        rng=os.urandom,
        utc_now=_utc_now,
        new_request_id=_new_request_id,
    )
    return WorkerApp(
        state,
        drain_s=_own_drain_s(config.gateway.drain_s),
        load=functools.partial(
            _load_worker, config, policy, load_engine or load_model_engine, exporter, open_guest
        ),
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
    tee = await asyncio.to_thread(  # 1
        open_tee,
        config.worker.tee,
        allows_simulated=policy.allows_simulated,
        role="worker",
        open_guest=open_guest,
    )
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
    bridge = EngineBridge(loaded.engine, loop=asyncio.get_running_loop())  # 3
    bridge.start()
    provider = _provider(config, semconv.SERVICE_WORKER, config.worker.id, exporter)
    clocks = _clocks()
    tracing = Tracing(provider=provider, clocks=clocks, instance_id=config.worker.id)
    model_name = _model_name(config.worker.model)
    facts = AttestedFacts(
        replica=config.worker.id,
        mode="terminate",
        policy_sha256=policy.sha256,
        weights_sha256=(loaded.weights_sha256,),
        ohttp=(_ohttp_key(state.key.config),),
    )
    chat = ChatService(
        tokenizer=loaded.tokenizer,
        model_name=model_name,
        max_context_tokens=loaded.max_context_tokens,
        bridge=bridge,
        clock_ns=clocks.monotonic_ns,
        unix_s=time.time,  # noqa: TID251 - the process edge
        report=tracing.generated,
    )
    state.ready = ReadyWorker(  # 4
        model_name=model_name,
        weights_sha256=loaded.weights_sha256,
        attester=Attester(tee=tee, facts=lambda: facts, utc_now=_utc_now),
        chat=chat,
        bridge=bridge,
        latest_step=lambda: stats.latest,
    )
    _log.info("worker ready", extra={"worker": config.worker.id, "model": model_name})
    try:
        yield
    finally:
        await bridge.stop()
        await asyncio.to_thread(provider.shutdown)


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
    from runtime.devices.registry import open_device
    from runtime.model_runner import ModelRunner, count_blocks, load_model
    from runtime.sampler import Sampler

    model = load_model(
        model_file(config.worker.model, config.paths),
        device=open_device("cpu", num_threads=config.worker.threads),
        on_progress=on_progress,
    )
    require_named_weights(config.worker.model, model.weights_sha256)
    settings = config.engine
    num_blocks = count_blocks(
        model.config, kv_cache_bytes=settings.kv_cache_bytes, block_size=settings.block_size
    )
    runner = ModelRunner(model, num_blocks=num_blocks, block_size=settings.block_size)
    if settings.max_context_tokens:
        runner.max_context_tokens = min(runner.max_context_tokens, settings.max_context_tokens)
    engine = Engine(
        runner=runner,
        sampler=Sampler(),
        tokenizer=model.tokenizer,
        config=EngineConfig(
            num_blocks=num_blocks,
            block_size=settings.block_size,
            max_batch_tokens=settings.max_batch_tokens,
            max_sequences=settings.max_sequences,
            model_sha256=model.weights_sha256,
        ),
        observer=observer,
        clock_ns=time.monotonic_ns,
        fresh_seed=_fresh_seed,
    )
    return LoadedEngine(
        engine=engine,
        tokenizer=model.tokenizer,
        max_context_tokens=engine.max_context_tokens,
        weights_sha256=model.weights_sha256,
    )


def _attestation(
    address: str,
    config: StarshadeConfig,
    policy: AppraisalPolicy,
    cache: VerifiedCache,
    clocks: Clocks,
) -> LiveAttestation:
    anchors = load_anchors()
    return LiveAttestation(
        address=address,
        policy=policy,
        anchors=anchors,
        cache=cache,
        completer=Completer(
            settings=config.gateway.collateral,
            folder=config.paths.collateral_dir,
            anchors=anchors.of_kinds(policy.anchor_kinds),
            monotonic_ns=clocks.monotonic_ns,
        ),
        rng=os.urandom,
        utc_now=_utc_now,
        clocks=clocks,
    )


def _gateway_attester(
    config: StarshadeConfig,
    policy: AppraisalPolicy,
    directory: WorkerDirectory,
    open_guest: GuestOpener,
) -> Attester | None:
    try:
        tee = open_tee(
            config.worker.tee,
            allows_simulated=policy.allows_simulated,
            role="gateway",
            open_guest=open_guest,
        )
    except GatewayError as err:
        _log.warning("the gateway cannot attest itself: %s", err.message)
        return None

    def facts() -> AttestedFacts:
        spki_sha256 = _spki_sha256(config.paths.server_cert)
        weights = {
            node.last_facts.weights_sha256
            for node in directory.nodes
            if node.last_facts is not None and node.last_facts.weights_sha256 is not None
        }
        return AttestedFacts(
            replica=_GATEWAY_ID,
            mode="terminate",
            policy_sha256=policy.sha256,
            weights_sha256=tuple(sorted(weights)),
            tls=tuple(
                TlsKey(spki_sha256=spki_sha256, host=host) for host in config.gateway.hostnames
            ),
        )

    return Attester(tee=tee, facts=facts, utc_now=_utc_now)


def _spki_sha256(certificate: Path) -> str:
    """Read for each bundle: the certificate is renewed while the gateway runs."""
    public_key = x509.load_pem_x509_certificate(certificate.read_bytes()).public_key()
    spki = public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(spki).hexdigest()


def _ohttp_key(key_config: KeyConfig) -> OhttpKey:
    return OhttpKey(
        key_id=key_config.key_id, kem=key_config.kem_id, config_sha256=key_config.sha256
    )


def _salt_secret(config: StarshadeConfig) -> bytes:
    """Made when there is no whole one; a new one puts cached prefixes out of reach, no worse."""
    path = config.paths.salt_key
    make_private_dir(path.parent)
    with locked(path.with_suffix(".lock")):
        if not path.exists() or path.stat().st_size != SALT_BYTES:
            write_atomic(path, secrets.token_bytes(SALT_BYTES))
        return path.read_bytes()


def _provider(
    config: StarshadeConfig, service: str, instance_id: str, exporter: SpanExporter | None
) -> TracerProvider:
    endpoint = config.telemetry.endpoint if config.telemetry.enabled else None
    return build_provider(service, endpoint=endpoint, instance_id=instance_id, exporter=exporter)


def _policy_source(policy: str) -> str | Path:
    return policy if policy in {"production", "development"} else Path(policy)


def _own_drain_s(drain_s: int) -> float:
    """A little less than the server's own patience, so that the last events still go out."""
    return max(drain_s - 1.0, drain_s / 2)


def node_ids(addresses: Sequence[str]) -> dict[str, str]:
    """Address to name, one entry per address; equal names are told apart by a number."""
    unique = dict.fromkeys(addresses)
    short = Counter(map(_node_id, unique))
    return {
        address: f"{name}:{number}" if short[name := _node_id(address)] > 1 else name
        for number, address in enumerate(unique)
    }


def _node_id(address: str) -> str:
    """`worker-0` of `unix:/run/worker-0.sock`, `127.0.0.1:9000` of `http://127.0.0.1:9000`."""
    if address.startswith("unix:"):
        return Path(address.removeprefix("unix:")).stem
    return address.partition("://")[2]


def _model_name(model: str) -> str:
    return Path(model).stem if "/" in model or model.endswith(".gguf") else model


def _clocks() -> Clocks:
    return Clocks(monotonic_ns=time.monotonic_ns, unix_ns=time.time_ns)


def _utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)  # noqa: TID251 - the process edge


def _fresh_seed() -> int:
    return secrets.randbits(_SEED_BITS)


def _new_request_id() -> str:
    return secrets.token_hex(12)

"""Which gateway and worker do the tests talk to?  Real apps and sockets around a small engine.

The engine is the real one over a runner whose model is a hash; its tokenizer turns every character
of a prompt into one token, so a prompt's length is known.
"""

import contextlib
import functools
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import httpx2
from openai import OpenAI
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from sqlalchemy import Engine as Database

import gateway.worker.wiring
from attestation.evidence import QuotingTee
from attestation.fake import FakeTee
from gateway.app import GatewayApp
from gateway.channel_keys import ChannelKeys
from gateway.config import StarshadeConfig, load_config
from gateway.db import ApiKeyStore, migrate, open_engine
from gateway.doors.terminate import TerminatingDoors
from gateway.tls import ensure_certificates
from gateway.wiring import build_gateway_app
from gateway.worker.app import WorkerApp
from gateway.worker.wiring import LoadedEngine, build_worker_app
from runtime import Engine, EngineConfig, EngineObserver, GenerationRequest
from tests.support.fake_runner import (
    PIECES,
    VOCAB_SIZE,
    FakeDetokenizer,
    FakeRunner,
    FakeSampler,
)
from tests.support.patience import PATIENCE_S
from tests.support.servers import ServerThread, unix_client

# A worker looks through its heap once, and here that would be the heap of all tests, each time.
vars(gateway.worker.wiring)["gc"] = SimpleNamespace(
    collect=lambda: None, freeze=lambda: None, unfreeze=lambda: None
)

MODEL = "hash"
CONTEXT_TOKENS = 256
NUM_BLOCKS, BLOCK_SIZE = 64, 4
Json = dict[str, Any]


class HashTokenizer:
    """One token per character of the conversation; token 0 ends an answer."""

    eos_token_ids = frozenset({0})

    token_bytes = tuple(piece.encode() for piece in PIECES)

    writes_tool_calls = False

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        now: datetime | None = None,
    ) -> list[int]:
        return self.encode_prompt("".join(f"{m['role'][0]}{m['content']}" for m in messages))

    def encode_prompt(self, text: str) -> list[int]:
        return [1 + ord(char) % (VOCAB_SIZE - 1) for char in text]

    def encode_document(self, text: str) -> list[int]:
        return self.encode_prompt(text)

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(PIECES[token_id] for token_id in token_ids)

    def detokenizer(self) -> FakeDetokenizer:
        return FakeDetokenizer()


@dataclass
class HashEngine:
    """Makes the engine; keeps the runner, so that a test can hold or break its steps."""

    runner: FakeRunner = field(
        default_factory=lambda: FakeRunner(
            num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, max_context_tokens=CONTEXT_TOKENS
        )
    )
    max_waiting: int = 256
    step_s: float = 0.0

    def load(
        self,
        _config: StarshadeConfig,
        _on_progress: Callable[[float], None],
        observer: EngineObserver,
    ) -> LoadedEngine:
        if self.step_s:
            self.runner.before_run = lambda _plan: time.sleep(self.step_s)
        engine = Engine(
            runner=self.runner,
            sampler=FakeSampler(),
            tokenizer=HashTokenizer(),
            config=EngineConfig(
                num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, max_waiting=self.max_waiting
            ),
            observer=observer,
            clock_ns=time.monotonic_ns,
            fresh_seed=lambda: 0,
        )
        return LoadedEngine(
            engine=engine,
            tokenizer=HashTokenizer(),
            max_context_tokens=engine.max_context_tokens,
            weights_sha256="ab" * 32,
        )


@dataclass
class ListeningEngine(HashEngine):
    """Also keeps every request that the engine was given."""

    seen: list[GenerationRequest] = field(default_factory=list)

    def load(self, *args: Any) -> LoadedEngine:
        loaded = super().load(*args)
        add = loaded.engine.add

        def listen(request: GenerationRequest) -> None:
            self.seen.append(request)
            add(request)

        loaded.engine.add = listen  # type: ignore[method-assign]
        return loaded


def make_config(state_dir: Path, **flags: object) -> StarshadeConfig:
    """A development configuration inside `state_dir`; `gateway__port=1` sets `gateway.port`."""
    given = {name.replace("__", "."): value for name, value in flags.items()}
    defaults: dict[str, object] = {
        "state_dir": str(state_dir),
        "cache_dir": str(state_dir / "cache"),
        "policy": "development",
        "worker.model": f"/{MODEL}.gguf",
        "worker.tee": "fake",
        "telemetry.enabled": False,
    }
    return load_config(flags=defaults | given, environ={})


def prepare(state_dir: Path, **flags: object) -> tuple[StarshadeConfig, str]:
    """The same with the folders and certificates of an installation, and a key of `acme`."""
    config = make_config(state_dir, **flags)
    for folder in (config.paths.run_dir, config.worker.socket.parent, config.paths.tls_dir):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    now = datetime.now(UTC)  # noqa: TID251 - tests are a process edge
    ensure_certificates(config.paths, config.gateway.hostnames, at=now)
    return config, make_key(config, tenant="acme")


@dataclass
class Stack:
    """A running gateway, its worker, and what they exported."""

    config: StarshadeConfig
    gateway: ServerThread
    worker: ServerThread
    client: httpx.Client
    openai: OpenAI  # the unmodified client, over the gateway's socket
    key: str
    gateway_spans: InMemorySpanExporter
    worker_spans: InMemorySpanExporter
    engine: HashEngine

    def chat(self, **members: Any) -> httpx.Response:
        return self.client.post("/v1/chat/completions", json=chat_body(**members))

    def worker_stats(self) -> Json:
        with unix_client(self.config.worker.socket) as client:
            stats: Json = client.get("/stats").json()
            return stats

    def settle(self) -> None:
        """Waits until every request that was answered has ended, and is recorded."""
        settle(self.gateway)

    def spans(self, name: str) -> list[ReadableSpan]:
        """Gateway spans of this name, those of every request that was answered among them."""
        self.gateway.settle()
        flush_spans(self.gateway.app)
        return [s for s in self.gateway_spans.get_finished_spans() if s.name.startswith(name)]

    def engine_spans(self) -> list[ReadableSpan]:
        """All of the worker, as `spans`."""
        self.worker.settle()
        flush_spans(self.worker.app)
        return list(self.worker_spans.get_finished_spans())


def settle(gateway: ServerThread) -> None:
    """Waits until every request that was answered has ended, and is in its database."""
    gateway.settle()
    writer = gateway.app.services.audit._writer
    writer.submit(lambda _connection: None).result(PATIENCE_S)


def flush_spans(app: GatewayApp | WorkerApp) -> None:
    """What has ended is with the exporter; a worker that loads has no spans."""
    if isinstance(app, GatewayApp):
        app.services.tracing.provider.force_flush()
    elif app.state.ready is not None:
        service: Any = app.state.ready.service
        report = getattr(service, "_service", service)._report
        report.__self__.provider.force_flush()


def chat_body(**members: Any) -> Json:
    messages = [{"role": "user", "content": "hello"}]
    return {"model": MODEL, "messages": messages, "max_tokens": 8, "temperature": 0, **members}


def events_of(response: httpx.Response) -> list[Json]:
    """The JSON of each event but the last, which must be `[DONE]`."""
    *events, done, rest = response.text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in events]


def error_of(response: httpx.Response) -> Json:
    error: Json = response.json()["error"]
    return error


def wait_until(is_true: Callable[[], bool], *, timeout_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


def make_worker_app(
    config: StarshadeConfig,
    engine: HashEngine,
    spans: InMemorySpanExporter,
    open_guest: Callable[[], QuotingTee] = FakeTee,
) -> WorkerApp:
    return build_worker_app(config, exporter=spans, load_engine=engine.load, open_guest=open_guest)


@contextlib.contextmanager
def running_stack(
    tmp_path: Path,
    *,
    engine: HashEngine | None = None,
    wait: bool = True,
    open_guest: Callable[[], QuotingTee] = FakeTee,
    is_tcp: bool = False,
    **flags: object,
) -> Iterator[Stack]:
    """Worker and gateway on Unix sockets, the gateway verified unless `wait` is False.

    `is_tcp`: the gateway has a port instead, without TLS.

    `open_guest` is the machine's TEE where `worker.tee` is `auto`.
    """
    config, key = prepare(tmp_path, **flags)
    engine = engine or HashEngine()
    gateway_spans, worker_spans = InMemorySpanExporter(), InMemorySpanExporter()
    worker_app = make_worker_app(config, engine, worker_spans, open_guest)
    worker = ServerThread(worker_app, uds=config.worker.socket)
    gateway_socket = config.paths.run_dir / "gateway.sock"
    gateway_app = build_gateway_app(config, exporter=gateway_spans, open_guest=open_guest)
    gateway = ServerThread(gateway_app, uds=None if is_tcp else gateway_socket)
    uds = None if is_tcp else str(gateway_socket)
    base_url = f"http://127.0.0.1:{gateway.port}" if is_tcp else "http://gateway"
    headers = {"authorization": f"Bearer {key}"}
    with (
        worker,
        gateway,
        httpx.Client(
            transport=httpx.HTTPTransport(uds=uds, verify=False),
            base_url=base_url,
            headers=headers,
            timeout=PATIENCE_S,
        ) as client,
        OpenAI(
            base_url=f"{base_url}/v1",
            api_key=key,
            http_client=httpx2.Client(
                transport=httpx2.HTTPTransport(uds=uds, verify=False), timeout=PATIENCE_S
            ),
            max_retries=0,
        ) as sdk,
    ):
        if wait:
            wait_until(lambda: client.get("/readyz").status_code == 200)
        yield Stack(
            config=config,
            gateway=gateway,
            worker=worker,
            client=client,
            openai=sdk,
            key=key,
            gateway_spans=gateway_spans,
            worker_spans=worker_spans,
            engine=engine,
        )


def edge_keys(app: GatewayApp) -> ChannelKeys:
    """The keys of a gateway that opens sealed requests itself."""
    doors = app.services.doors
    assert isinstance(doors, TerminatingDoors)
    return doors.keys


def rotate(server: ServerThread, keys: ChannelKeys, *, seconds: float = 300) -> None:
    """Lets the keys of a running server be that much older; its other clocks stay as they are."""
    ring = keys.ring
    clock_s = ring._clock_s
    ring._clock_s = lambda: clock_s() + seconds

    async def advance() -> None:
        ring.advance()

    server.run(advance())


@functools.cache
def _new_database() -> bytes:
    """A gateway.db as `migrate` leaves it, which takes longer than to copy one."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "gateway.db")
        engine = open_engine(f"sqlite:///{path}")
        migrate(engine)
        engine.dispose()
        return path.read_bytes()


def open_database(url: str) -> Database:
    """With today's tables."""
    engine = open_engine(url)
    path = Path(engine.url.database or "")
    if engine.dialect.name != "sqlite" or path.exists():
        migrate(engine)
    else:
        path.write_bytes(_new_database())
    return engine


def make_key(config: StarshadeConfig, *, tenant: str, **rights: Any) -> str:
    database = open_database(config.database_url)
    key = ApiKeyStore(database).create(label="test", tenant=tenant, now_ns=1, **rights)
    database.dispose()
    return key

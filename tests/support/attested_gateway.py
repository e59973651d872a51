"""A gateway in small: it attests its TLS key and its OHTTP key, and opens what is sealed to it.

Every fault that a client must notice can be put into it, one at a time.
"""

import asyncio
import base64
import contextlib
import json
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from attestation.channel import (
    CHUNKED_RESPONSE_TYPE,
    ChannelError,
    ServerKey,
    ServerRequest,
    bhttp,
    serialize_key_configs,
)
from attestation.evidence import QuotingTee, make_bundle
from attestation.fake import FakeTee
from attestation.keyset import Mode, OhttpKey, TlsKey, build_keyset
from attestation.model import parse_nonce
from attestation.transport import attested_client
from tests.support.servers import ServerThread
from tests.support.tls import key_sha256, self_signed, server_context

Answer = Callable[[bhttp.Request], Awaitable[tuple[int, AsyncIterator[bytes]]]]


async def pieces_of(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        await asyncio.sleep(0)
        yield piece


async def echo(request: bhttp.Request) -> tuple[int, AsyncIterator[bytes]]:
    """What was asked, in three pieces."""
    return 200, pieces_of(request.method.encode(), request.path.encode(), request.content)


@dataclass
class AttestedGateway:
    """An ASGI app; the fields may be changed while it runs."""

    certificate: Path
    answer: Answer = echo
    tee: QuotingTee = field(default_factory=FakeTee)
    mode: Mode = "terminate"
    key: ServerKey = field(default_factory=lambda: ServerKey.generate(key_id=1))
    attested: ServerKey | None = None  # named in the keyset instead of `key`
    tls_sha256: bytes | None = None  # named in the keyset instead of the certificate's
    keyset_lifetime: timedelta = timedelta(hours=1)
    flip_bit: bool = False  # of the quote
    workers: tuple[str, ...] = ()  # behind a gateway that passes through, which has no key then
    worker_mode: Mode = "pass-through"
    worker_modes: dict[str, Mode] = field(default_factory=dict)  # of some
    replica: str | None = None  # what every keyset says instead of the name
    dead_workers: tuple[str, ...] = ()  # which the gateway does not hold verified
    flipped_workers: tuple[str, ...] = ()  # whose quote has a bit flipped
    attest_delay_s: float = 0.0
    media_type: str = "text/plain"  # of answers
    cut: bool = False  # answers end without their final chunk
    outer_reply: Response | None = None  # instead of opening
    num_attested: int = 0
    opened: list[bhttp.Request] = field(default_factory=list)
    posted: list[bytes] = field(default_factory=list)
    credentials: list[str | None] = field(default_factory=list)  # outside the seal

    def __post_init__(self) -> None:
        self._app = Starlette(
            routes=[
                Route("/v1/attestation", self._attestation),
                Route("/v1/nodes", self._nodes),
                Route("/.well-known/ohttp-gateway", self._keys),
                Route("/.well-known/ohttp-gateway", self._ohttp, methods=["POST"]),
            ]
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    def rotate(self) -> None:
        """The old key is gone at once."""
        self.key = ServerKey.generate(key_id=self.key.config.key_id % 255 + 1)

    async def _attestation(self, request: Request) -> Response:
        self.num_attested += 1
        await asyncio.sleep(self.attest_delay_s)
        now = datetime.now(UTC)  # noqa: TID251 - tests are a process edge
        config = (self.attested or self.key).config
        spki = self.tls_sha256 or key_sha256(self.certificate)
        worker = request.query_params.get("node")
        key = OhttpKey(key_id=config.key_id, kem=config.kem_id, config_sha256=config.sha256)
        keyset = build_keyset(
            not_after=now + self.keyset_lifetime,
            replica=self.replica or worker or "gateway",
            mode=self.mode if worker is None else self.worker_modes.get(worker, self.worker_mode),
            ohttp=[] if worker is None and self.workers else [key],
            tls=[TlsKey(spki_sha256=spki.hex(), host="127.0.0.1")] if worker is None else [],
            policy_sha256="cd" * 32,
        )
        nonce = parse_nonce(request.query_params["nonce"])
        bundle: dict[str, Any] = json.loads(make_bundle(self.tee, nonce, keyset, now).to_json())
        if self.flip_bit or worker in self.flipped_workers:
            bundle["quote_b64"] = _flipped(bundle["quote_b64"])
        return JSONResponse(bundle)

    async def _nodes(self, _request: Request) -> Response:
        entries = [
            {"id": name, "state": "lost" if name in self.dead_workers else "verified"}
            for name in self.workers
        ]
        return JSONResponse({"object": "list", "data": entries})

    async def _keys(self, _request: Request) -> Response:
        keys = serialize_key_configs([self.key.config])
        return Response(keys, media_type="application/ohttp-keys")

    async def _ohttp(self, request: Request) -> Response:
        body = await request.body()
        self.posted.append(body)
        self.credentials.append(request.headers.get("authorization"))
        if self.outer_reply is not None:
            return self.outer_reply
        opened = ServerRequest({self.key.config.key_id: self.key})
        try:
            message = bhttp.parse_request(opened.open_message(body))
        except ChannelError as err:
            return JSONResponse({"code": err.code}, 400, media_type="application/problem+json")
        self.opened.append(message)
        status, pieces = await self.answer(message)
        return StreamingResponse(
            self._sealed(opened, status, pieces), media_type=CHUNKED_RESPONSE_TYPE
        )

    async def _sealed(
        self, opened: ServerRequest, status: int, pieces: AsyncIterator[bytes]
    ) -> AsyncIterator[bytes]:
        sealer = opened.response_sealer(rng=os.urandom)
        head = bhttp.ResponseHead(status=status, fields=(("content-type", self.media_type),))
        yield sealer.start() + sealer.seal_chunk(bhttp.serialize_response_head(head))
        async for piece in pieces:
            yield sealer.seal_chunk(bhttp.serialize_content_chunk(piece))
        if not self.cut:
            yield sealer.seal_chunk(bhttp.serialize_end()) + sealer.seal_final()


def _flipped(quote_b64: str) -> str:
    """One bit of the quote's body, far from its header."""
    quote = bytearray(base64.b64decode(quote_b64))
    quote[200] ^= 1
    return base64.b64encode(quote).decode()


@dataclass
class Running:
    """A gateway that runs, with what a client needs to know of it."""

    gateway: AttestedGateway
    url: str
    ca_file: Path
    tls: ssl.SSLContext


@contextlib.contextmanager
def running_gateway(certificate: tuple[Path, Path]) -> Iterator[Running]:
    """On a TLS port of its own; ``certificate`` is that of ``tests.support.tls.self_signed``."""
    gateway = AttestedGateway(certificate=certificate[0])
    context = server_context(certificate)
    with ServerThread(gateway, context=context) as server:
        url = f"https://127.0.0.1:{server.port}/v1"
        yield Running(gateway=gateway, url=url, ca_file=certificate[0], tls=context)


def client_of(running: Running, **options: Any) -> httpx.Client:
    given = {"policy": "development", "ca_file": running.ca_file, **options}
    return attested_client(running.url, **given)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return self_signed(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def running(certificate: tuple[Path, Path]) -> Iterator[Running]:
    with running_gateway(certificate) as running:
        yield running

"""Is a sealed response believed only when its last chunk verified?  A worker cheats at the end."""

import gzip
import os
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from attestation.channel import ResponseSealer, ServerKey, ServerRequest, bhttp
from gateway.problems import GatewayError
from gateway.sealed import (
    MAX_PROBLEM_BYTES,
    StaleKey,
    WorkerClient,
    _problem_code,
    open_exchange,
)
from tests.support.servers import ServerThread

KEY = ServerKey.generate(key_id=7)
REQUEST = bhttp.Request(method="GET", path="/v1/models")
HEAD = bhttp.serialize_response_head(bhttp.ResponseHead(status=200))
BODY = bhttp.serialize_content_chunk(b"the whole answer")
END = bhttp.serialize_end()

Write = Callable[[ResponseSealer], bytes]


class CheatingWorker:
    """Opens the request honestly and answers as `write` or `refusal` says; HTTP itself is sound."""

    write: Write = staticmethod(lambda sealer: b"")
    refusal: str | None = None
    packed: bytes | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        if self.packed is not None:
            headers = {"content-encoding": "gzip"}
            await Response(self.packed, headers=headers)(scope, receive, send)
            return
        opened = ServerRequest({7: KEY})
        opened.open_message(await Request(scope, receive).body())
        response: Response = (
            Response(self.write(opened.response_sealer(rng=os.urandom)))
            if self.refusal is None
            else JSONResponse({"code": self.refusal}, status_code=400)
        )
        await response(scope, receive, send)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[CheatingWorker, Path]]:
    app, path = CheatingWorker(), tmp_path_factory.mktemp("cheat") / "worker.sock"
    with ServerThread(app, uds=path):
        yield app, path


async def read(path: Path) -> bytes:
    client = WorkerClient(f"unix:{path}")
    try:
        exchange = await open_exchange(client, KEY.config, REQUEST, rng=os.urandom)
        try:
            return b"".join([piece async for piece in exchange.content()])
        finally:
            await exchange.aclose()
    finally:
        await client.retire()


async def test_a_whole_response(served: tuple[CheatingWorker, Path]) -> None:
    app, path = served
    app.write = lambda s: s.seal_message(HEAD + BODY + END)
    assert await read(path) == b"the whole answer"


@pytest.mark.parametrize(
    ("write", "code"),
    [
        (lambda s: s.start() + s.seal_chunk(HEAD + BODY + END), "upstream_truncated"),
        (lambda s: s.start() + s.seal_chunk(HEAD + BODY) + s.seal_final(), "upstream_truncated"),
        (lambda s: s.seal_message(HEAD + BODY + END)[:-1], "upstream_truncated"),
        (lambda s: s.start(), "upstream_truncated"),
        (lambda s: b"", "upstream_truncated"),
        (lambda s: flipped(s.start() + s.seal_chunk(HEAD + BODY + END), -1), "upstream_error"),
        (lambda s: flipped(s.seal_message(HEAD + BODY + END), 0), "upstream_error"),
        (lambda s: s.seal_message(b"\x03junk"), "upstream_error"),
    ],
    ids=["no-final", "no-end", "cut", "nonce", "empty", "flip-chunk", "flip-nonce", "not-bhttp"],
)
async def test_anything_less(served: tuple[CheatingWorker, Path], write: Write, code: str) -> None:
    app, path = served
    app.write = write
    with pytest.raises(GatewayError) as caught:
        await read(path)
    assert caught.value.code == code


@pytest.mark.parametrize("code", ["key_config_error", "decrypt_failed"])
async def test_a_stale_key_may_be_tried_again(
    served: tuple[CheatingWorker, Path], monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    app, path = served
    monkeypatch.setattr(app, "refusal", code)
    with pytest.raises(StaleKey):
        await read(path)


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        ("worker_not_ready", "worker_not_ready"),
        ("server_stopping", "server_stopping"),
        ("replay_detected", "upstream_error"),
        ("made up", "upstream_error"),
    ],
)
async def test_other_refusals_may_not(
    served: tuple[CheatingWorker, Path], monkeypatch: pytest.MonkeyPatch, refusal: str, code: str
) -> None:
    app, path = served
    monkeypatch.setattr(app, "refusal", refusal)
    with pytest.raises(GatewayError) as caught:
        await read(path)
    assert caught.value.code == code


@pytest.mark.parametrize("path_", ["/keys", "/attestation"])
async def test_a_compressed_answer_is_not_inflated(
    served: tuple[CheatingWorker, Path], monkeypatch: pytest.MonkeyPatch, path_: str
) -> None:
    app, path = served
    monkeypatch.setattr(app, "packed", gzip.compress(bytes(64 << 20), 9))
    client = WorkerClient(f"unix:{path}")
    tracemalloc.start()
    try:
        with pytest.raises(GatewayError, match="compressed") as caught:
            await client.get(path_, max_bytes=1 << 20)
        assert caught.value.code == "upstream_error"
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
        await client.retire()


async def test_nobody_there(tmp_path: Path) -> None:
    with pytest.raises(GatewayError) as caught:
        await read(tmp_path / "nobody.sock")
    assert caught.value.code == "upstream_unavailable"


def flipped(data: bytes, index: int) -> bytes:
    changed = bytearray(data)
    changed[index] ^= 1
    return bytes(changed)


@pytest.mark.parametrize(
    "said", [b"[" * MAX_PROBLEM_BYTES, b"[]", b"1", b'{"code": 1e999}', b"\xff"]
)
def test_a_refusal_that_is_none_of_ours_has_no_code(said: bytes) -> None:
    assert _problem_code(said) is None

"""Is a body cut off at its cap and its deadline, and is a full house said at once?"""

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from attestation.model import Nonce
from gateway.app import MAX_OPEN_EVIDENCE, GatewayApp
from gateway.auth import StoredKey, hash_key
from gateway.limits import BodyLimit, ConcurrencyLimit, RequestLimits
from gateway.problems import GatewayError
from gateway.worker.attester import Attester
from tests.gateway.support import running_stack, wait_until
from tests.support.patience import PATIENCE_S

LIMITS = RequestLimits(max_body_bytes=10, body_deadline_s=0.05)


def scope_of(path: str = "/v1/x", **headers: str) -> Scope:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "path": path, "method": "POST", "headers": raw}


def receive_of(*chunks: bytes) -> Receive:
    left = list(chunks)

    async def receive() -> Message:
        if not left:
            await asyncio.Event().wait()
        body = left.pop(0)
        return {"type": "http.request", "body": body, "more_body": body != chunks[-1]}

    return receive


class Sent:
    """Collects what an app answers."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    async def __call__(self, message: Message) -> None:
        self.messages.append(message)

    @property
    def status(self) -> int:
        status: int = self.messages[0]["status"]
        return status

    @property
    def code(self) -> str:
        code: str = json.loads(self.messages[1]["body"])["error"]["code"]
        return code


async def reading_app(scope: Scope, receive: Receive, send: Send) -> None:
    while (await receive())["more_body"]:
        pass
    await send({"type": "http.response.start", "status": 200, "headers": []})


async def read(*chunks: bytes, **headers: str) -> Sent:
    sent = Sent()
    app = BodyLimit(reading_app, limits=LIMITS)
    await app(scope_of(**headers), receive_of(*chunks), sent)
    return sent


async def test_a_body_up_to_the_cap_passes() -> None:
    assert (await read(b"01234", b"56789")).status == 200


async def test_a_body_over_the_cap_is_cut_while_it_arrives() -> None:
    with pytest.raises(GatewayError) as caught:
        await read(b"01234", b"567890", b"never read")
    assert caught.value.code == "body_too_large"


async def test_a_declared_length_is_refused_before_reading() -> None:
    sent = await read(content_length="11")
    assert (sent.status, sent.code) == (413, "body_too_large")


async def test_a_body_that_trickles_is_timed_out() -> None:
    app = BodyLimit(reading_app, limits=LIMITS)

    async def trickle() -> Message:
        await asyncio.sleep(0.02)
        return {"type": "http.request", "body": b"", "more_body": True}

    with pytest.raises(GatewayError) as caught:
        await app(scope_of(), trickle, Sent())
    assert caught.value.code == "request_timeout"


async def test_waiting_for_a_disconnect_is_not_timed_out() -> None:
    messages: list[Message] = [
        {"type": "http.request", "body": b"x", "more_body": False},
        {"type": "http.disconnect"},
    ]

    async def receive() -> Message:
        if len(messages) == 1:
            await asyncio.sleep(3 * LIMITS.body_deadline_s)
        return messages.pop(0)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        assert (await receive())["type"] == "http.disconnect"

    await BodyLimit(app, limits=LIMITS)(scope_of(), receive, Sent())


async def test_more_than_the_limit_is_refused_and_slots_come_back() -> None:
    may_end = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await may_end.wait()
        if scope["path"] == "/v1/fails":
            raise RuntimeError
        await send({"type": "http.response.start", "status": 200, "headers": []})

    limit = ConcurrencyLimit(app, max_open=2, counts=lambda s: s["path"].startswith("/v1/"))

    def call(path: str, sent: Sent) -> "asyncio.Task[None]":
        return asyncio.ensure_future(limit(scope_of(path), receive_of(), sent))

    held: list[asyncio.Task[Any]] = [call("/v1/x", Sent()), call("/v1/fails", Sent())]
    await asyncio.sleep(0)
    refused, uncounted = Sent(), Sent()
    await call("/v1/x", refused)
    assert (refused.status, refused.code) == (503, "overloaded")
    held.append(call("/healthz", uncounted))
    may_end.set()
    await asyncio.gather(*held, return_exceptions=True)
    assert uncounted.status == 200
    again = Sent()
    await call("/v1/x", again)
    assert again.status == 200


def test_strangers_who_ask_for_evidence_take_no_slot_of_the_chat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_quote, asked = threading.Event(), threading.Semaphore(0)

    def slow_bundle(_attester: Attester, _nonce: Nonce) -> bytes:
        asked.release()
        may_quote.wait(PATIENCE_S)
        return b"{}"

    def ask() -> int:
        path = f"/v1/attestation?nonce={'ab' * 32}"
        return stack.client.get(path, headers={"authorization": ""}).status_code

    with (
        running_stack(tmp_path, gateway__max_concurrent_streams=1) as stack,
        ThreadPoolExecutor(MAX_OPEN_EVIDENCE) as strangers,
    ):
        monkeypatch.setattr(Attester, "bundle", slow_bundle)
        try:
            asking = [strangers.submit(ask) for _ in range(2)]
            assert all(asked.acquire(timeout=PATIENCE_S) for _ in asking)
            assert stack.chat().status_code == 200
        finally:
            may_quote.set()
        assert [answer.result() for answer in asking] == [200, 200]


def test_made_up_keys_take_no_place_of_a_client(tmp_path: Path) -> None:
    may_answer = threading.Event()

    class SlowForStrangers:
        def find(self, key_sha256: bytes) -> StoredKey | None:
            if key_sha256 != hash_key(stack.key):
                may_answer.wait(PATIENCE_S)
            return keys.find(key_sha256)

    def come(number: int) -> int:
        headers = {"authorization": f"Bearer sk-starshade-{number}"}
        return stack.client.get("/v1/models", headers=headers).status_code

    with (
        running_stack(tmp_path, gateway__max_concurrent_streams=1) as stack,
        ThreadPoolExecutor(2) as strangers,
    ):
        assert stack.chat().status_code == 200  # from now on this key is known
        gateway: GatewayApp = stack.gateway.app
        authenticator = gateway.services.authenticator
        keys, authenticator._keys = authenticator._keys, SlowForStrangers()
        try:
            coming = [strangers.submit(come, number) for number in range(2)]
            wait_until(lambda: len(authenticator._lookups) == 2)
            assert stack.chat().status_code == 200
        finally:
            may_answer.set()
        assert [answer.result() for answer in coming] == [401, 401]

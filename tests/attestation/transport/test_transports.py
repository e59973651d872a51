"""Does a client seal all that it sends to the attested key, and send nothing without a verdict?"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import JSONResponse, Response

from attestation.channel import ServerKey, bhttp
from attestation.transport import (
    AsyncAttestedTransport,
    AttestedTransport,
    ChannelBroken,
    EvidenceRefused,
    GatewayUnavailable,
    attested_async_client,
    attested_client,
    transports,
)
from attestation.transport.opened import VERDICT
from attestation.transport.pinned import PinnedContext, pinned_context
from tests.support.attested_gateway import AttestedGateway, Running, client_of
from tests.support.tls import require_client_of, self_signed

SECRET = "the-canary-sings-at-noon"


def async_client_of(running: Running, **options: Any) -> httpx.AsyncClient:
    given = {"policy": "development", "ca_file": running.ca_file, **options}
    return attested_async_client(running.url, **given)


def test_a_request_travels_sealed_and_its_answer_comes_back(running: Running) -> None:
    with client_of(running) as client:
        response = client.post(
            f"{running.url}/chat/completions?a=1",
            content=SECRET,
            headers={"authorization": f"Bearer {SECRET}"},
        )
    assert response.status_code == 200
    assert response.text == f"POST/v1/chat/completions?a=1{SECRET}"
    assert response.headers["content-type"] == "text/plain"
    assert len(response.extensions[VERDICT]) > 8
    (posted,) = running.gateway.posted
    assert SECRET.encode() not in posted
    (opened,) = running.gateway.opened
    fields = dict(opened.fields)
    assert fields["authorization"] == f"Bearer {SECRET}"
    assert "date" in fields
    assert not {"host", "connection", "content-length", "accept-encoding"} & fields.keys()


async def test_the_same_for_an_event_loop(running: Running) -> None:
    async with async_client_of(running) as client:
        response = await client.post(f"{running.url}/x", content=SECRET)
    assert response.text == f"POST/v1/x{SECRET}"
    assert SECRET.encode() not in running.gateway.posted[0]


def test_one_verdict_serves_many_requests(running: Running) -> None:
    with client_of(running) as client:
        for _ in range(3):
            assert client.get(f"{running.url}/models").status_code == 200
    assert running.gateway.num_attested == 1


def _flip(gateway: AttestedGateway) -> None:
    gateway.flip_bit = True


def _swap_key(gateway: AttestedGateway) -> None:
    gateway.attested = ServerKey.generate(key_id=9)


def _swap_tls(gateway: AttestedGateway) -> None:
    gateway.tls_sha256 = bytes(32)


@pytest.mark.parametrize(
    ("fault", "code"),
    [(_flip, "quote_signature"), (_swap_key, "key_config_error"), (_swap_tls, "channel_binding")],
)
def test_nothing_is_sent_to_a_gateway_that_is_not_what_it_attests(
    running: Running, fault: Callable[[AttestedGateway], None], code: str
) -> None:
    fault(running.gateway)
    with client_of(running) as client, pytest.raises(EvidenceRefused) as caught:
        client.post(f"{running.url}/x", content=SECRET)
    assert caught.value.code == code
    assert caught.value.result is not None
    assert running.gateway.posted == []


def test_the_production_policy_refuses_a_simulated_gateway(running: Running) -> None:
    with (
        client_of(running, policy="production") as client,
        pytest.raises(EvidenceRefused) as caught,
    ):
        client.get(f"{running.url}/models")
    assert caught.value.code == "untrusted_root"
    assert running.gateway.posted == []


def test_a_mode_that_is_insisted_on_is_required(running: Running) -> None:
    with (
        client_of(running, mode="pass-through") as client,
        pytest.raises(EvidenceRefused) as caught,
    ):
        client.get(f"{running.url}/models")
    assert caught.value.code == "session_not_accepted"
    with client_of(running, mode="terminate") as client:
        assert client.get(f"{running.url}/models").status_code == 200


def test_a_gateway_that_names_no_weights_serves_none_that_are_insisted_on(running: Running) -> None:
    with (
        client_of(running, weights_sha256=["ab" * 32]) as client,
        pytest.raises(EvidenceRefused) as caught,
    ):
        client.get(f"{running.url}/models")
    assert caught.value.code == "session_not_accepted"
    assert running.gateway.posted == []


def test_evidence_that_cannot_be_read_is_refused(running: Running) -> None:
    async def nonsense(_request: object) -> Response:
        return Response("{}", media_type="application/json")

    running.gateway._app.router.routes[0].app = Response("{}")  # type: ignore[attr-defined]
    with client_of(running) as client, pytest.raises(EvidenceRefused) as caught:
        client.get(f"{running.url}/models")
    assert (caught.value.code, caught.value.result) == ("format", None)


def test_another_server_is_not_spoken_to(running: Running) -> None:
    with client_of(running) as client:
        for url in ("https://example.org/v1/models", running.url.replace("https", "http")):
            with pytest.raises(httpx.UnsupportedProtocol):
                client.get(url)
    assert running.gateway.num_attested == 0


def test_a_gateway_that_wants_a_client_certificate_is_shown_one(
    running: Running, tmp_path: Path
) -> None:
    shown = self_signed(tmp_path)
    require_client_of(running.tls, shown)
    with client_of(running) as client, pytest.raises(GatewayUnavailable):
        client.get(f"{running.url}/x")
    with client_of(running, client_certificate=shown) as client:
        assert client.get(f"{running.url}/x").status_code == 200
    no_pair = (shown[0], running.ca_file)
    with (
        client_of(running, client_certificate=no_pair) as client,
        pytest.raises(GatewayUnavailable, match="no certificate with its key"),
    ):
        client.get(f"{running.url}/x")


@pytest.mark.parametrize("proxy", ["proxy:3128", "http://user:pw@127.0.0.1:3128", "socks5://x"])
def test_a_proxy_of_no_use_is_told_at_once(running: Running, proxy: str) -> None:
    with pytest.raises(ValueError, match=r"^proxy: ") as caught:
        client_of(running, proxy=proxy)
    assert "pw" not in str(caught.value)


def test_nobody_there_is_told_apart_from_a_refusal(running: Running) -> None:
    with (
        attested_client("https://127.0.0.1:1/v1", ca_file=running.ca_file) as client,
        pytest.raises(GatewayUnavailable) as caught,
    ):
        client.get("https://127.0.0.1:1/v1/models")
    assert (caught.value.code, caught.value.reason) == ("evidence_unavailable", "no_answer")


def test_a_changed_key_costs_one_verification_and_no_request(running: Running) -> None:
    with client_of(running) as client:
        client.get(f"{running.url}/models")
        running.gateway.rotate()
        assert client.get(f"{running.url}/models").status_code == 200
    assert running.gateway.num_attested == 2
    assert len(running.gateway.opened) == 2


async def test_a_changed_key_costs_one_verification_on_a_loop_too(running: Running) -> None:
    running.gateway.attest_delay_s = 0.2
    async with async_client_of(running) as client:
        await client.get(f"{running.url}/models")
        running.gateway.rotate()
        answers = await asyncio.gather(*(client.get(f"{running.url}/{n}") for n in range(8)))
    assert [answer.status_code for answer in answers] == [200] * 8
    assert running.gateway.num_attested == 2


def test_many_threads_share_one_verification(running: Running) -> None:
    running.gateway.attest_delay_s = 0.2
    with client_of(running) as client, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: client.get(f"{running.url}/{n}").status_code, range(8)))
    assert answers == [200] * 8
    assert running.gateway.num_attested == 1


def test_many_threads_share_one_pool(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second one would be lost, with its open connections."""
    made: list[frozenset[bytes]] = []

    def slowly(ca_file: Path | None, pins: frozenset[bytes], shown: None) -> PinnedContext:
        made.append(pins)
        time.sleep(0.05)
        return pinned_context(ca_file, pins, shown)

    monkeypatch.setattr(transports, "pinned_context", slowly)
    with client_of(running) as client, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: client.get(f"{running.url}/{n}").status_code, range(8)))
    assert answers == [200] * 8
    assert len(made) == 1


def test_a_gateway_that_never_knows_its_key_is_given_up(running: Running) -> None:
    problem = {"code": "key_config_error", "detail": SECRET}
    running.gateway.outer_reply = JSONResponse(problem, 400)
    with client_of(running) as client:
        response = client.get(f"{running.url}/models")
    assert (response.status_code, response.json()["error"]["code"]) == (400, "key_config_error")
    assert len(running.gateway.posted) == 2
    assert running.gateway.posted[0] != running.gateway.posted[1]  # never the same twice


def test_a_refusal_from_outside_the_seal_has_the_clients_shape(running: Running) -> None:
    reply = JSONResponse({"code": "overloaded", "detail": SECRET}, 503)
    running.gateway.outer_reply = reply
    with client_of(running) as client:
        response = client.get(f"{running.url}/models")
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "overloaded"
    assert SECRET not in response.text


def test_a_plain_answer_is_not_taken_for_the_gateways(running: Running) -> None:
    running.gateway.outer_reply = JSONResponse({"choices": [{"text": SECRET}]})
    with client_of(running) as client:
        response = client.get(f"{running.url}/models")
    assert response.status_code == 502
    assert SECRET not in response.text


def test_an_answer_that_is_cut_short_never_reads_as_whole(running: Running) -> None:
    running.gateway.cut = True
    with client_of(running) as client, pytest.raises(ChannelBroken) as caught:
        client.get(f"{running.url}/models")
    assert caught.value.code == "decrypt_failed"


async def test_an_answer_that_is_cut_short_on_a_loop(running: Running) -> None:
    running.gateway.cut = True
    async with async_client_of(running) as client:
        with pytest.raises(ChannelBroken):
            await client.get(f"{running.url}/models")


def test_pieces_arrive_as_they_are_sent(running: Running) -> None:
    may_go_on = threading.Event()

    async def slowly(_request: bhttp.Request) -> tuple[int, AsyncIterator[bytes]]:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"first"
            await asyncio.to_thread(may_go_on.wait, 10)
            yield b"last"

        return 200, pieces()

    running.gateway.answer = slowly
    with client_of(running) as client, client.stream("GET", f"{running.url}/x") as response:
        pieces = response.iter_raw()
        assert next(pieces) == b"first"
        may_go_on.set()
        assert list(pieces) == [b"last"]


def test_a_stream_that_is_left_closes_its_connection(running: Running) -> None:
    with client_of(running) as client, client.stream("GET", f"{running.url}/x") as response:
        assert next(response.iter_raw())
    with client_of(running) as client:
        assert client.get(f"{running.url}/x").status_code == 200


def test_a_new_tls_key_is_accepted_once_it_is_attested(
    running: Running, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = self_signed(tmp_path_factory.mktemp("other"), "another")
    both = other[0].parent / "both.pem"
    both.write_bytes(running.ca_file.read_bytes() + other[0].read_bytes())
    with client_of(running, ca_file=both) as client:
        client.get(f"{running.url}/x")
        running.tls.load_cert_chain(*other)  # for new connections
        running.gateway.certificate = other[0]
        transport = client._transport
        assert isinstance(transport, AttestedTransport)
        for pool in transport._pools.values():
            pool.close()
        assert client.get(f"{running.url}/x").status_code == 200
    assert running.gateway.num_attested == 2


def test_a_tls_key_that_is_not_attested_gets_no_byte(
    running: Running, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = self_signed(tmp_path_factory.mktemp("thief"), "a thief")
    both = other[0].parent / "both.pem"
    both.write_bytes(running.ca_file.read_bytes() + other[0].read_bytes())
    with client_of(running, ca_file=both) as client:
        client.get(f"{running.url}/x")
        running.tls.load_cert_chain(*other)
        transport = client._transport
        assert isinstance(transport, AttestedTransport)
        for pool in transport._pools.values():
            pool.close()
        with pytest.raises(EvidenceRefused) as caught:
            client.post(f"{running.url}/x", content=SECRET)
    assert caught.value.code == "channel_binding"
    assert len(running.gateway.posted) == 1


async def test_an_event_loop_s_handshake_is_pinned_too(running: Running) -> None:
    async with async_client_of(running) as client:
        transport = client._transport
        assert isinstance(transport, AsyncAttestedTransport)
        session = await transport.keeper.arequire()
        pool = transport._pool(session, httpx.AsyncHTTPTransport)
        pool._pool._ssl_context.pins = frozenset({bytes(32)})  # type: ignore[union-attr]
        with pytest.raises(httpx.ConnectError):
            await client.post(f"{running.url}/x", content=SECRET)
    assert running.gateway.posted == []

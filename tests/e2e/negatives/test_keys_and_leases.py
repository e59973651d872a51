"""Keys that are not the attested ones, and verdicts that no longer hold: attacks 6 to 11."""

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

import gateway.wiring
from attestation.channel import ChannelError, ServerKey, ServerRequest, serialize_key_configs
from attestation.fake import FakeTee
from attestation.fake.platform import FakePlatform
from attestation.tdx.endorsements import TdxCollateral
from attestation.transport import AttestedTransportError, attested_client
from gateway.channel_keys import ChannelKeys
from tests.e2e.negatives.conftest import MakeScene
from tests.e2e.negatives.scene import CANARY, CHAT, Scene, code_of_event, listen
from tests.e2e.support import Installation, held_engine
from tests.gateway.support import wait_until
from tests.support.patience import PATIENCE_S
from tests.support.servers import ServerThread
from tests.support.tls import self_signed, server_context

MINE = ServerKey.generate(key_id=1)
MY_KEYS = ("application/ohttp-keys", serialize_key_configs([MINE.config]))
STEP_S = 0.02
MAX_LATE_STEPS = 1.0 / STEP_S  # of the second in which a stream is cut
LEASE = timedelta(seconds=300)


def opens(sealed: bytes) -> bool:
    """Whether the attacker's key opens it."""
    try:
        ServerRequest({1: MINE}).open_message(sealed)
    except ChannelError:
        return False
    return True


# -- 6: genuine evidence, another's key --------------------------------------------------------


def test_genuine_evidence_beside_another_s_key(make_scene: MakeScene) -> None:
    """The gateway's side: the evidence is the worker's own, the key offered with it is not."""
    with make_scene(wait=False, replaced={b"/keys": MY_KEYS}) as made:
        made.wait_for_event("worker_quarantined", code="key_config_error")
        made.assert_refused(made.ask(), "upstream_verification_failed", detail="key_config_error")
        made.assert_nothing_sealed()
        made.assert_nothing_computed()
        made.assert_no_secret()


class Middleman:
    """Passes everything between a client and the real gateway on, behind a certificate of its own
    that the client trusts, as a CA that was made to would.
    """

    def __init__(self, running: Installation) -> None:
        self._running = running
        self.seen: list[bytes] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        request = Request(scope, receive)
        body = await request.body()
        self.seen.append(body)
        context = self._running.tls_context()
        async with httpx.AsyncClient(verify=context, timeout=PATIENCE_S) as client:
            target = f"{self._running.base_url}{request.url.path}?{request.url.query}"
            answer = await client.request(
                request.method, target, content=body, headers=_kept(request.headers)
            )
        response = Response(answer.content, answer.status_code, headers=_kept(answer.headers))
        await response(scope, receive, send)


def _kept(headers: Any) -> dict[str, str]:
    left_out = {"host", "content-length", "connection", "transfer-encoding"}
    return {name: value for name, value in headers.items() if name.lower() not in left_out}


def test_genuine_evidence_behind_another_s_tls_key(fresh: Scene, tmp_path: Path) -> None:
    """The client's side: it is the gateway's evidence, and not the key of this connection."""
    folder = tmp_path / "middle"
    folder.mkdir()
    certificate = self_signed(folder)
    middleman = Middleman(fresh.running)
    with ServerThread(middleman, context=server_context(certificate)) as server:
        url = f"https://127.0.0.1:{server.port}/v1"
        with (
            attested_client(url, policy="development", ca_file=certificate[0]) as client,
            pytest.raises(AttestedTransportError) as caught,
        ):
            client.post(f"{url}/chat/completions", json=fresh.running.body(CANARY))
    assert caught.value.code == "channel_binding"
    assert middleman.seen
    assert not any(middleman.seen)  # evidence was asked for, and no body ever came
    fresh.assert_nothing_computed()
    fresh.assert_no_secret()


# -- 7: the key is swapped after verification --------------------------------------------------


def test_a_worker_s_key_is_swapped_after_its_verdict(fresh: Scene) -> None:
    """What is sealed is sealed to the lease's key; the next look at the swap ends the lease."""
    fresh.running.proxy.replaced[b"/keys"] = MY_KEYS
    assert fresh.ask().status_code == 200
    fresh.running.reattest()
    fresh.computed.clear()
    fresh.answers.clear()
    fresh.assert_refused(fresh.ask(), "upstream_verification_failed", detail="key_config_error")
    fresh.wait_for_event("worker_quarantined", code="key_config_error")
    sealed = fresh.running.proxy.sealed_requests()
    assert sealed
    assert not any(map(opens, sealed))
    fresh.assert_nothing_computed()
    fresh.assert_no_secret()


def test_the_gateway_s_own_list_is_swapped_after_verification(fresh: Scene) -> None:
    """A client that verified seals to what the evidence names, whatever the list says now."""
    url = f"{fresh.running.base_url}/v1"
    ca_file = fresh.running.config.paths.ca_cert
    with attested_client(url, policy="development", ca_file=ca_file) as client:
        headers = {"authorization": f"Bearer {fresh.running.key}"}
        assert client.get(f"{url}/models", headers=headers).status_code == 200
        with _publishing(MINE):
            assert client.get(f"{url}/models", headers=headers).status_code == 200
    with (
        _publishing(MINE),
        attested_client(url, policy="development", ca_file=ca_file) as late,
        pytest.raises(AttestedTransportError) as caught,
    ):
        late.post(f"{url}/chat/completions", json=fresh.running.body(CANARY), headers=headers)
    assert caught.value.code == "key_config_error"
    fresh.assert_nothing_computed()
    fresh.assert_no_secret()


@contextmanager
def _publishing(key: ServerKey) -> Iterator[None]:
    """What the list says; what is attested comes from the ring itself."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ChannelKeys, "published", property(lambda _: (key.config,)))
        yield


# -- 8: between the verdict and the request ----------------------------------------------------


def test_a_key_that_changes_between_verdict_and_request(fresh: Scene) -> None:
    """Sealed to the old key, which nobody has; attested again, sealed again, never in clear."""
    running, before = fresh.running, len(fresh.running.proxy.sealed_requests())
    running.worker.stop()
    running.restart_worker()
    wait_until(lambda: running.worker_get("/readyz").status_code == 200)
    answer = fresh.ask()
    fresh.answers.clear()
    assert answer.status_code == 200
    assert len(running.proxy.sealed_requests()) - before >= 2
    fresh.assert_no_secret()


def test_whoever_has_the_worker_s_place_then_gets_nothing(make_scene: MakeScene) -> None:
    """The same, but what has taken its place is a machine in debug mode."""
    tee = Changing()
    with make_scene(worker__tee="auto", worker_tee=lambda: tee) as made:
        running = made.running
        running.worker.stop()
        tee.now = DEBUGGED
        running.restart_worker()
        wait_until(lambda: running.worker_get("/readyz").status_code == 200)
        listen(made)
        made.assert_refused(made.ask(), "upstream_verification_failed", detail="debug_enabled")
        made.assert_nothing_computed()
        made.assert_no_secret()


# -- 9: the verdict runs out while the request waits -------------------------------------------


class Clock:
    """The machine's, and then some."""

    ahead = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(dt.UTC) + self.ahead  # noqa: TID251 - tests are a process edge


def test_a_verdict_that_runs_out_while_the_request_waits(
    make_scene: MakeScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(gateway.wiring, "utc_now", clock)
    with make_scene() as made:
        directory = made.running.gateway.app.services.directory
        choose, num_sealed = directory.node_for, len(made.running.proxy.sealed_requests())

        async def choose_and_wait(*args: Any, **options: Any) -> Any:
            node = await choose(*args, **options)
            made.running.proxy.replaced[b"/attestation"] = ("application/json", b"{}")
            clock.ahead = LEASE + timedelta(seconds=1)
            return node

        monkeypatch.setattr(directory, "node_for", choose_and_wait)
        answer = made.ask()
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] in {
            "upstream_unavailable",
            "upstream_verification_failed",
        }
        made.assert_refused(answer, answer.json()["error"]["code"])
        assert len(made.running.proxy.sealed_requests()) == num_sealed
        made.assert_nothing_computed()
        made.assert_no_secret()


# -- 10: a negative verdict while an answer streams --------------------------------------------


@dataclass(frozen=True)
class _Expired(FakeTee):
    """Its collateral ran out yesterday."""

    def collateral(self, at: datetime) -> TdxCollateral:
        return super().collateral(at - timedelta(days=31))


GOOD = FakeTee()
EXPIRED = _Expired()
DEBUGGED = FakeTee(platform=FakePlatform(td_attributes=bytes.fromhex("0100001000000000")))


@dataclass
class Changing:
    """A machine that is `now` another one."""

    now: FakeTee = field(default_factory=lambda: GOOD)
    tee: str = GOOD.tee

    def attest(self, report_data: bytes, *, at: datetime) -> tuple[bytes, TdxCollateral]:
        return self.now.attest(report_data, at=at)


def stream_through(made: Scene, tee: Changing, then: FakeTee) -> tuple[list[str], int, str]:
    """A stream's events, the steps of STEP_S or more that the engine made for it once the machine
    was found to be `then`, and its receipt's id.
    """
    body = made.running.body(CANARY, stream=True, max_tokens=100, ignore_eos=True)
    with (
        held_engine(made.running, STEP_S) as steps,
        made.running.http() as client,
        client.stream("POST", CHAT, json=body) as response,
    ):
        lines = (line for line in response.iter_lines() if line)
        events = [next(lines)]
        tee.now = then
        made.running.reattest()
        num_steps = len(steps)
        events += lines
        return events, len(steps) - num_steps, response.headers["starshade-receipt"]


def test_a_worker_found_out_in_mid_stream_is_cut_off_at_once(make_scene: MakeScene) -> None:
    """Class A: what it claims to be is not true."""
    tee = Changing()
    with make_scene(worker__tee="auto", worker_tee=lambda: tee) as made:
        events, num_late, receipt_id = stream_through(made, tee, DEBUGGED)
        assert num_late < MAX_LATE_STEPS
        assert code_of_event(events[-1]) in {"upstream_truncated", "upstream_verification_failed"}
        receipt = made.receipt(receipt_id)
        assert receipt["outcome"] == "failed"
        assert receipt["revocation"] == {"code": "debug_enabled", "class": "A"}
        made.wait_for_event("worker_quarantined", code="debug_enabled")
        made.assert_refused(made.ask(), "upstream_verification_failed", detail="debug_enabled")
        made.assert_no_secret()


def test_a_verdict_that_merely_ran_out_lets_the_stream_end(make_scene: MakeScene) -> None:
    """Class B: nothing new is sent to it, and what it does may be finished."""
    tee = Changing()
    with make_scene(worker__tee="auto", worker_tee=lambda: tee) as made:
        events, _, receipt_id = stream_through(made, tee, EXPIRED)
        assert events[-1] == "data: [DONE]"
        receipt = made.receipt(receipt_id)
        assert receipt["outcome"] == "complete"
        assert receipt["revocation"]["class"] == "B"
        made.computed.clear()
        code = receipt["revocation"]["code"]
        made.assert_refused(made.ask(), "upstream_verification_failed", detail=code)
        made.assert_nothing_computed()


# -- 11: a connection of an earlier verdict ----------------------------------------------------


def test_no_connection_outlives_its_verdict(fresh: Scene) -> None:
    proxy = fresh.running.proxy
    assert fresh.ask().status_code == 200
    fresh.running.reattest()
    old = [bytes(stream) for stream in proxy.to_worker[:-1]]
    carried = [stream.count(b"POST /ohttp") for stream in map(bytes, proxy.to_worker)]
    assert sum(carried[: len(old)]) >= 2  # the models of the first verdict, and the chat
    first = [index for index, stream in enumerate(old) if stream.count(b"POST /ohttp")]
    before = {index: len(proxy.to_worker[index]) for index in first}
    assert fresh.ask().status_code == 200
    assert {index: len(proxy.to_worker[index]) for index in first} == before

"""Does a gateway that cannot read pass sealed requests on, only to verified workers, and whole?"""

import json
import os
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from attestation.binding import keyset_digest
from attestation.channel import (
    CHUNKED_REQUEST_TYPE,
    PLAIN_REQUEST_TYPE,
    ClientRequest,
    PlainClientRequest,
    ServerKey,
    bhttp,
)
from gateway.app import GatewayApp
from tests.gateway.doors.clients import CHAT, key_list
from tests.gateway.doors.passing import NONCE, ask, inner, post, refused
from tests.gateway.support import (
    HashEngine,
    Stack,
    events_of,
    make_key,
    rotate,
    running_stack,
    wait_until,
)
from tests.support.patience import PATIENCE_S


def test_the_keys_are_the_workers_own_and_attested(blind: Stack) -> None:
    evidence = "/v1/attestation"
    own = blind.client.get(evidence, params={"nonce": NONCE}).json()["keyset"]
    assert (own["mode"], own["ohttp"]) == ("pass-through", [])
    params = {"nonce": NONCE, "node": "worker-0"}
    worker = blind.client.get(evidence, params=params).json()["keyset"]
    assert worker["mode"] == "pass-through"
    attested = [key["config_sha256"] for key in worker["ohttp"]]
    assert [config.sha256 for config in key_list(blind)] == attested
    caching = blind.client.get("/.well-known/ohttp-gateway").headers["cache-control"]
    assert 0 < int(caching.removeprefix("max-age=")) <= 300


def test_keys_for_a_model(blind: Stack) -> None:
    path = "/.well-known/ohttp-gateway"
    assert blind.client.get(path, params={"model": "hash"}).status_code == 200
    missing = blind.client.get(path, params={"model": "other"})
    assert refused(missing) == (404, "model_not_found")


def test_whole_and_streamed_answers(blind: Stack) -> None:
    whole = json.loads(ask(blind).content)["choices"][0]["message"]["content"]
    streamed = ask(blind, stream=True)
    events = [e for e in streamed.content.split(b"\n\n") if e.startswith(b"data:")]
    assert events[-1] == b"data: [DONE]"
    deltas = [json.loads(event[6:])["choices"][0]["delta"] for event in events[:-1]]
    assert "".join(delta.get("content") or "" for delta in deltas) == whole != ""


def test_plain_ohttp(blind: Stack) -> None:
    sealed = PlainClientRequest(key_list(blind)[0], rng=os.urandom)
    body = sealed.seal_message(bhttp.serialize_request(inner(blind)))
    answer = post(blind, body, PLAIN_REQUEST_TYPE)
    assert answer.headers["content-type"] == "message/ohttp-res"
    assert bhttp.parse_response(sealed.open_response(answer.content)).status == 200


@pytest.mark.parametrize("index", [1, 2, 3])
def test_every_key_of_the_list_opens(blind: Stack, index: int) -> None:
    """X25519 and X-Wing, Active and Pending."""
    assert ask(blind, key_list(blind)[index]).status == 200


def test_the_gateway_has_nothing_to_open_with(blind: Stack) -> None:
    app: GatewayApp = blind.gateway.app
    assert not hasattr(app.services.doors, "keys")
    assert refused(blind.client.get("/.well-known/hpke-keys")) == (404, "not_found")
    tunnel = blind.client.post("/", headers={"x-tng-ohttp-api": "/tng/key-config"})
    assert refused(tunnel) == (404, "not_found")


def test_what_the_gateway_could_read_is_refused(blind: Stack) -> None:
    assert refused(blind.chat()) == (415, "unsupported_media_type")
    sealed_body = blind.client.post(
        CHAT, content=b"x", headers={"ehbp-encapsulated-key": "ab" * 32}
    )
    assert refused(sealed_body) == (415, "unsupported_media_type")
    assert refused(post(blind, b"{}", "application/json")) == (415, "unsupported_media_type")
    assert blind.worker_stats()["open"] == 0


def test_a_stranger_is_refused_outside(blind: Stack) -> None:
    sealed = ClientRequest(key_list(blind)[0], rng=os.urandom)
    body = sealed.seal_message(bhttp.serialize_request(inner(blind)))
    headers = {"content-type": CHUNKED_REQUEST_TYPE, "authorization": "Bearer nobody"}
    answer = blind.client.post("/ohttp", content=body, headers=headers)
    assert refused(answer) == (401, "invalid_api_key")


@pytest.mark.parametrize(
    ("weights", "status"), [("ab" * 32, 200), ("cd" * 32, 412)], ids=["met", "not met"]
)
def test_weights_that_are_insisted_on_are_the_workers(
    blind: Stack, weights: str, status: int
) -> None:
    sealed = ClientRequest(key_list(blind)[0], rng=os.urandom)
    body = sealed.seal_message(bhttp.serialize_request(inner(blind)))
    answer = post(blind, body, **{"starshade-pin": f"weights_sha256={weights}"})
    assert answer.status_code == status, answer.text


def test_the_keyset_can_be_insisted_on_for_a_while(
    blind: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = blind.gateway.app.services
    start = datetime(2026, 1, 1, 12, tzinfo=UTC)
    now = start
    monkeypatch.setattr(services.doors, "_utc_now", lambda: now)
    seen = keyset_digest(
        blind.client.get("/v1/attestation", params={"nonce": NONCE}).json()["keyset"]
    ).hex()
    now = start + timedelta(minutes=59.9)
    assert services.attester.keyset_sha256() == seen
    now = start + timedelta(minutes=60)
    assert services.attester.keyset_sha256() != seen


def test_a_key_of_no_worker(blind: Stack) -> None:
    known = {config.key_id for config in key_list(blind)}
    other = ServerKey.generate(min(set(range(256)) - known)).config
    answer = post(blind, ClientRequest(other, rng=os.urandom).seal_message(b"x"))
    assert refused(answer) == (400, "key_config_error")
    assert answer.json()["type"].endswith("#ohttp-key")
    assert refused(post(blind, b"")) == (400, "decrypt_failed")


def ends(stack: Stack) -> list[tuple[object, object]]:
    """Status and code of every request that has ended."""
    attributes = [dict(span.attributes or {}) for span in stack.spans("sealed")]
    names = ("http.response.status_code", "error.type")
    return [(each[names[0]], each.get(names[1])) for each in attributes]


def test_refusals_of_the_worker_come_as_they_are(blind: Stack) -> None:
    sealed = ClientRequest(key_list(blind)[0], rng=os.urandom)
    body = sealed.seal_message(bhttp.serialize_request(inner(blind)))
    assert refused(post(blind, body[:-1])) == (400, "decrypt_failed")
    assert post(blind, body).status_code == 200
    assert refused(post(blind, body)) == (409, "replay_detected")
    assert {(400, "decrypt_failed"), (409, "replay_detected")} <= set(ends(blind))


def test_spans_tell_of_a_sealed_request_and_no_more(blind: Stack) -> None:
    ask(blind)
    attributes = [dict(span.attributes or {}) for span in blind.spans("sealed")]
    assert {each["gen_ai.operation.name"] for each in attributes} == {"sealed"}
    assert not blind.spans("chat")
    assert {each["http.route"] for each in attributes} == {"/ohttp"}
    assert not any("gen_ai.request.model" in each for each in attributes)


def test_an_answer_comes_as_it_is_made(tmp_path: Path) -> None:
    engine, has_arrived, steps = HashEngine(), threading.Event(), list[int]()

    def before_run(_plan: object) -> None:
        steps.append(1)
        assert len(steps) <= 2 or has_arrived.wait(PATIENCE_S)

    engine.runner.before_run = before_run
    with running_stack(tmp_path, engine=engine, gateway__mode="pass-through") as stack:
        sealed = ClientRequest(key_list(stack)[0], rng=os.urandom)
        body = sealed.seal_message(bhttp.serialize_request(inner(stack, stream=True)))
        opener, parser, content = sealed.response_opener(), bhttp.ResponseParser(), b""
        headers = {"content-type": CHUNKED_REQUEST_TYPE}
        with stack.client.stream("POST", "/ohttp", content=body, headers=headers) as answer:
            for data in answer.iter_raw():
                for chunk in opener.feed(data):
                    content += b"".join(parser.feed(chunk))
                if content:
                    has_arrived.set()
        opener.finish()
        assert b"[DONE]" in content


def test_a_client_that_goes_away_ends_the_work(tmp_path: Path) -> None:
    with running_stack(
        tmp_path, engine=HashEngine(step_s=0.1), gateway__mode="pass-through"
    ) as stack:
        sealed = ClientRequest(key_list(stack)[0], rng=os.urandom)
        request = inner(stack, stream=True, max_tokens=200, ignore_eos=True)
        body = sealed.seal_message(bhttp.serialize_request(request))
        headers = {"content-type": CHUNKED_REQUEST_TYPE}
        with stack.client.stream("POST", "/ohttp", content=body, headers=headers) as answer:
            pieces = answer.iter_raw()  # one that is let go closes its connection
            next(pieces)
            assert stack.worker_stats()["open"] == 1
        wait_until(lambda: stack.worker_stats()["open"] == 0)
        wait_until(lambda: ends(stack) == [(499, "client_disconnected")])


def test_a_worker_that_is_cut_off_leaves_no_whole_answer(tmp_path: Path) -> None:
    with running_stack(
        tmp_path, engine=HashEngine(step_s=0.1), gateway__mode="pass-through"
    ) as stack:
        sealed = ClientRequest(key_list(stack)[0], rng=os.urandom)
        request = inner(stack, stream=True, max_tokens=200, ignore_eos=True)
        body = sealed.seal_message(bhttp.serialize_request(request))
        headers = {"content-type": CHUNKED_REQUEST_TYPE}
        with stack.client.stream("POST", "/ohttp", content=body, headers=headers) as answer:
            pieces = answer.iter_raw()
            next(pieces)
            stack.worker.cut()
            with pytest.raises(httpx.RemoteProtocolError):
                list(pieces)
        wait_until(lambda: ends(stack) == [(200, "upstream_truncated")])


def test_keys_of_a_worker_open_through_its_rotation(tmp_path: Path) -> None:
    with running_stack(tmp_path, gateway__mode="pass-through") as stack:
        app, worker = stack.gateway.app, stack.worker.app
        (node,) = app.services.directory.nodes
        first, _, second, _ = key_list(stack)
        rotate(stack.worker, worker.state.keys)
        assert ask(stack, first).status == 200  # before the gateway has seen the change
        stack.gateway.run(app.services.directory.reattest(node))
        assert key_list(stack)[0] == second
        assert ask(stack, first).status == 200  # Stale: no longer listed, and still opened
        assert ask(stack).status == 200
        rotate(stack.worker, worker.state.keys)
        answer = post(stack, ClientRequest(first, rng=os.urandom).seal_message(b"x"))
        assert refused(answer) == (400, "key_config_error")


def test_a_key_is_known_for_as_long_as_its_worker_opens_with_it(tmp_path: Path) -> None:
    period_s = 3600
    with running_stack(
        tmp_path, gateway__mode="pass-through", worker__key_rotation_s=period_s
    ) as stack:
        app, worker = stack.gateway.app, stack.worker.app
        (node,) = app.services.directory.nodes
        first = key_list(stack)[0]
        rotate(stack.worker, worker.state.keys, seconds=period_s)
        stack.gateway.run(app.services.directory.reattest(node))
        assert first not in key_list(stack)
        utc_now = app.services.doors._utc_now
        app.services.doors._utc_now = lambda: utc_now() + timedelta(seconds=period_s)
        assert ask(stack, first).status == 200


def test_a_worker_that_is_not_verified_gets_nothing(tmp_path: Path) -> None:
    with running_stack(tmp_path, gateway__mode="pass-through") as stack:
        config = key_list(stack)[0]
        app: GatewayApp = stack.gateway.app
        (node,) = app.services.directory.nodes

        async def quarantine() -> None:
            now = app.services.utc_now()
            node.machine = node.machine.rejected(
                "signature_invalid", now=now, retry_after=(now - now)
            )

        stack.gateway.run(quarantine())
        sealed = ClientRequest(config, rng=os.urandom)
        answer = post(stack, sealed.seal_message(bhttp.serialize_request(inner(stack))))
        assert refused(answer) == (503, "upstream_verification_failed")
        assert answer.headers["retry-after"]
        assert stack.worker_stats()["open"] == 0


def test_no_prefix_is_shared_between_requests(tmp_path: Path) -> None:
    """The gateway cannot tell tenants apart inside the seal, so each request is one of its own."""
    with running_stack(tmp_path, gateway__mode="pass-through") as stack:
        prompt = [{"role": "user", "content": "a prompt of several blocks" * 3}]
        for fields, expected in (((), 0), ((("starshade-cache-salt", "ab" * 32),), 1)):
            cached = []
            for _ in range(2):
                request = inner(stack, messages=prompt, max_tokens=1)
                request = bhttp.Request(
                    method="POST",
                    path=CHAT,
                    fields=request.fields + fields,
                    content=request.content,
                )
                sealed = ClientRequest(key_list(stack)[0], rng=os.urandom)
                answer = post(stack, sealed.seal_message(bhttp.serialize_request(request)))
                opened = sealed.response_opener().open_message(answer.content)
                usage = json.loads(bhttp.parse_response(opened).content)["usage"]
                cached.append(usage["prompt_tokens_details"]["cached_tokens"])
            assert cached[0] == 0
            assert (cached[1] > 0) is bool(expected)


def test_requests_of_a_tenant_are_limited(tmp_path: Path) -> None:
    with running_stack(
        tmp_path, gateway__mode="pass-through", gateway__quota__requests_per_minute=2
    ) as stack:
        key = make_key(stack.config, tenant="other")
        headers = {"content-type": CHUNKED_REQUEST_TYPE, "authorization": f"Bearer {key}"}
        statuses = []
        for _ in range(3):
            sealed = ClientRequest(key_list(stack)[0], rng=os.urandom)
            body = sealed.seal_message(bhttp.serialize_request(inner(stack)))
            statuses.append(stack.client.post("/ohttp", content=body, headers=headers).status_code)
        assert statuses == [200, 200, 429]


def test_a_gateway_that_opens_requests_says_so(tmp_path: Path) -> None:
    with running_stack(tmp_path) as stack:
        keyset = stack.client.get("/v1/attestation", params={"nonce": NONCE}).json()["keyset"]
        assert keyset["mode"] == "terminate"
        assert events_of(stack.chat(stream=True))


def test_no_client_is_sent_to_a_worker_that_expects_a_gateway(tmp_path: Path) -> None:
    """It would believe the priority and share the prefixes of whoever asks."""
    with running_stack(tmp_path, gateway__mode="pass-through") as stack:
        app: GatewayApp = stack.gateway.app
        (node,) = app.services.directory.nodes
        config = key_list(stack)[0]
        app.services.doors._routes._seen.clear()  # type: ignore[attr-defined]
        assert node.grant is not None
        node.grant = replace(node.grant, mode="terminate")
        listed = stack.client.get("/.well-known/ohttp-gateway")
        assert refused(listed) == (503, "upstream_unavailable")
        answer = post(stack, ClientRequest(config, rng=os.urandom).seal_message(b"x"))
        assert refused(answer) == (400, "key_config_error")

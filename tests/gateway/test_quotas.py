"""Is a tenant held to its limits, and only that tenant, and charged what it used?"""

import re
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from gateway.auth import Principal, Scope, TenantLimits
from gateway.calls import Call, take_usage
from gateway.chat_call import chat_call
from gateway.db import TenantStore, open_engine
from gateway.facts import RequestFacts
from gateway.problems import GatewayError
from gateway.quotas import (
    ASSUMED_OUTPUT_TOKENS,
    MAX_IDLE_ACCOUNTS,
    Admission,
    Quotas,
    duration,
    estimated_tokens,
)
from gateway.wiring import build_gateway_app
from telemetry.timeline import RequestTimeline
from tests.gateway.support import (
    HashEngine,
    ListeningEngine,
    Stack,
    chat_body,
    error_of,
    make_config,
    make_key,
    running_stack,
    wait_until,
)

S = 1_000_000_000


class Clock:
    now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


def quotas_of(clock: Clock, *, max_open_tokens: int = 10**6, **limits: int) -> Quotas:
    return Quotas(defaults=TenantLimits(**limits), max_open_tokens=max_open_tokens, clock_ns=clock)


def by(tenant: str = "acme", **limits: int) -> Principal:
    return Principal(key_id="k", tenant=tenant, limits=TenantLimits(**limits))


def call_of(text: str = "hi", max_tokens: int | None = 10) -> Call:
    body = chat_body(messages=[{"role": "user", "content": text}])
    call = chat_call(body)
    return replace(call, max_tokens=max_tokens)


def facts_of(*, dispatched: bool = True, code: str | None = None) -> RequestFacts:
    timeline = RequestTimeline(arrived_ns=0, wall_anchor_ns=0)
    if dispatched:
        timeline.mark_dispatched(1)
    facts = RequestFacts(request_id="r", timeline=timeline, route="/v1/chat/completions")
    if code is not None:
        facts.fail(code)
    return facts


def refused(quotas: Quotas, principal: Principal) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        quotas.enter(principal)
    assert caught.value.code == "rate_limit_exceeded"
    return caught.value


def test_requests_beyond_the_limit_are_told_when_to_come_back() -> None:
    clock = Clock()
    quotas = quotas_of(clock, requests_per_minute=2)
    for _ in range(2):
        quotas.enter(by()).end(facts_of())
    error = refused(quotas, by())
    assert error.headers["retry-after"] == "30"
    assert error.headers["x-ratelimit-remaining-requests"] == "0"
    assert error.headers["x-ratelimit-reset-requests"] == "1m0s"
    quotas.enter(by("other"))
    clock.now_ns += 30 * S
    quotas.enter(by())
    refused(quotas, by())


def test_a_tenant_s_own_limit_outranks_the_default_and_zero_is_none() -> None:
    quotas = quotas_of(Clock(), requests_per_minute=1, open_requests=1)
    own = by(requests_per_minute=3, open_requests=0)
    for _ in range(3):
        quotas.enter(own)
    refused(quotas, own)
    assert "2" not in quotas.enter(by("free", requests_per_minute=0)).headers().values()


def test_open_requests_are_counted_until_they_end_once() -> None:
    quotas = quotas_of(Clock(), open_requests=2)
    first, _ = quotas.enter(by()), quotas.enter(by())
    assert refused(quotas, by()).headers == {"retry-after": "1"}
    quotas.enter(by("other"))
    first.end(facts_of())
    first.end(facts_of())
    quotas.enter(by())
    refused(quotas, by())


def test_a_refused_request_takes_no_place() -> None:
    clock = Clock()
    quotas = quotas_of(clock, requests_per_minute=1, open_requests=2)
    quotas.enter(by()).end(facts_of())
    for _ in range(5):
        refused(quotas, by())
    clock.now_ns += 60 * S
    quotas.enter(by())


def left(admission: Admission) -> int:
    return int(admission.headers()["x-ratelimit-remaining-tokens"])


def entered(quotas: Quotas, call: Call) -> Admission:
    admission = quotas.enter(by())
    admission.admit(call)
    return admission


def test_tokens_are_estimated_first_and_then_charged_as_used() -> None:
    quotas = quotas_of(Clock(), tokens_per_minute=1000)
    call = call_of("x" * 400, max_tokens=500)
    estimate = estimated_tokens(call)
    assert 600 < estimate < 700
    admission = entered(quotas, call)
    assert left(admission) == 1000 - estimate
    with pytest.raises(GatewayError, match="1000 tokens a minute; retry in"):
        quotas.enter(by()).admit(call)
    facts = facts_of()
    take_usage(facts, prompt=30, cached=30, output=12)
    admission.end(facts)
    assert left(admission) == 1000 - 42


def charged(facts: RequestFacts) -> int:
    """How many tokens more than its prompt a request is charged; nothing at all is below 0."""
    quotas, call = quotas_of(Clock(), tokens_per_minute=1000), call_of("x" * 400)
    admission = entered(quotas, call)
    admission.end(facts)
    prompt_tokens = estimated_tokens(call) - 10
    return 1000 - left(admission) - prompt_tokens


@pytest.mark.parametrize("code", ["client_disconnected", "upstream_truncated", "server_stopping"])
def test_an_answer_that_breaks_off_has_cost_its_prompt_and_what_came(code: str) -> None:
    facts = facts_of(code=code)
    facts.has_answer = True
    facts.timeline.chunks = [(1, 1)] * 5
    assert charged(facts) == 5


@pytest.mark.parametrize("code", ["client_disconnected", "request_timeout", "grammar_failed"])
def test_what_a_worker_computed_in_vain_has_cost_its_prompt(code: str) -> None:
    assert charged(facts_of(code=code)) == 0


@pytest.mark.parametrize("code", ["client_disconnected", "request_timeout", "upstream_unavailable"])
def test_what_was_never_sent_costs_nothing(code: str) -> None:
    assert charged(facts_of(dispatched=False, code=code)) < 0


@pytest.mark.parametrize(
    "code",
    ["context_length_exceeded", "overloaded", "worker_not_ready", "upstream_unavailable"],
)
def test_what_no_worker_took_costs_nothing(code: str) -> None:
    assert charged(facts_of(code=code)) < 0


def test_a_request_larger_than_the_quota_needs_a_full_bucket_and_leaves_a_debt() -> None:
    clock = Clock()
    quotas = quotas_of(clock, tokens_per_minute=100)
    huge = entered(quotas, call_of(max_tokens=250))
    facts = facts_of()
    take_usage(facts, prompt=0, cached=0, output=250)
    huge.end(facts)
    assert left(huge) == 0
    clock.now_ns += 90 * S
    assert left(huge) == 0
    clock.now_ns += 30 * S
    assert left(huge) == 50


def test_one_huge_request_leaves_room_for_other_tenants() -> None:
    quotas = quotas_of(Clock(), max_open_tokens=400)
    huge = call_of(max_tokens=10**6)
    held = [entered(quotas, huge) for _ in range(3)]
    with pytest.raises(GatewayError) as caught:
        quotas.enter(by()).admit(call_of(max_tokens=1))
    assert (caught.value.code, caught.value.headers) == (
        "rate_limit_exceeded",
        {"retry-after": "1"},
    )
    other = quotas.enter(by("other"))
    other.admit(huge)
    for each in (*held, other):
        each.end(facts_of())
    assert quotas.open_tokens == 0
    entered(quotas, huge)


def test_all_tenants_together_are_bounded() -> None:
    quotas = quotas_of(Clock(), max_open_tokens=400)
    held = [quotas.enter(by(f"t{number}")) for number in range(4)]
    for each in held:
        each.admit(call_of(max_tokens=1000))
    with pytest.raises(GatewayError) as caught:
        quotas.enter(by("other")).admit(call_of(max_tokens=1))
    assert caught.value.code == "overloaded"
    held[0].end(facts_of())
    quotas.enter(by("other")).admit(call_of(max_tokens=1))


@pytest.mark.parametrize("max_open_tokens", [1, 2, 3, 5])
def test_one_alone_always_gets_through(max_open_tokens: int) -> None:
    quotas = quotas_of(Clock(), max_open_tokens=max_open_tokens)
    entered(quotas, call_of(max_tokens=1000)).end(facts_of())
    entered(quotas, call_of(max_tokens=1000))


def test_an_answer_without_a_bound_is_assumed_to_have_one() -> None:
    bounded, free = call_of(max_tokens=1), call_of(max_tokens=None)
    assert estimated_tokens(free) - estimated_tokens(bounded) == ASSUMED_OUTPUT_TOKENS - 1
    both = replace(bounded, num_choices=3)
    assert estimated_tokens(both) - estimated_tokens(bounded) == 2


def test_tenants_whose_buckets_are_full_are_forgotten_others_are_not() -> None:
    clock = Clock()
    quotas = quotas_of(clock, requests_per_minute=1)
    for number in range(MAX_IDLE_ACCOUNTS - 1):
        quotas.enter(by(f"idle-{number}")).end(facts_of())
    clock.now_ns += 61 * S
    quotas.enter(by("busy")).end(facts_of())
    quotas.enter(by("new"))
    assert set(quotas._accounts) == {"busy", "new"}
    refused(quotas, by("busy"))


@pytest.mark.parametrize(
    ("span_ns", "text"),
    [(0, "0ms"), (1, "1ms"), (850_000_000, "850ms"), (S, "1s"), (90 * S, "1m30s")],
)
def test_durations_read_as_openai_s(span_ns: int, text: str) -> None:
    assert duration(span_ns) == text


# -- through the app -------------------------------------------------------------------------


def set_limits(stack: Stack, tenant: str, limits: TenantLimits) -> None:
    engine = open_engine(stack.config.database_url)
    TenantStore(engine).set_limits(tenant, limits, now_ns=1)
    engine.dispose()


def test_an_answer_tells_what_is_left_and_a_refusal_when(tmp_path: Path) -> None:
    with running_stack(
        tmp_path,
        gateway__quota__requests_per_minute=2,
        gateway__quota__tokens_per_minute=10_000,
    ) as stack:
        whole, streamed, beyond = (stack.chat(stream=stream) for stream in (False, True, False))
        assert (whole.status_code, streamed.status_code) == (200, 200)
        assert whole.headers["x-ratelimit-remaining-requests"] == "1"
        assert streamed.headers["x-ratelimit-remaining-requests"] == "0"
        used = whole.json()["usage"]["total_tokens"]
        assert int(streamed.headers["x-ratelimit-remaining-tokens"]) <= 10_000 - used
        assert beyond.status_code == 429
        assert error_of(beyond)["code"] == "rate_limit_exceeded"
        assert re.fullmatch("2[0-9]|30", beyond.headers["retry-after"])
        assert beyond.headers["x-ratelimit-limit-requests"] == "2"
        spans = stack.spans("chat")
        codes = [s.attributes.get("error.type") for s in spans if s.attributes is not None]
        assert codes.count("rate_limit_exceeded") == 1


def test_a_stream_that_is_left_is_charged_and_a_refused_request_is_not(tmp_path: Path) -> None:
    with running_stack(
        tmp_path,
        engine=HashEngine(step_s=0.01),
        gateway__quota__tokens_per_minute=1000,
    ) as stack:
        quotas: Quotas = stack.gateway.app.services.quotas

        def remaining() -> int:
            (use,) = quotas.use()
            assert use.remaining_tokens is not None
            return use.remaining_tokens

        too_long = chat_body(messages=[{"role": "user", "content": "x" * 100_000}])
        refused = stack.client.post("/v1/chat/completions", json=too_long)
        assert error_of(refused)["code"] == "context_length_exceeded"
        assert remaining() == 1000
        body = chat_body(
            messages=[{"role": "user", "content": "x" * 200}],
            stream=True,
            max_tokens=50,
            ignore_eos=True,
        )
        with stack.client.stream("POST", "/v1/chat/completions", json=body) as held:
            next(held.iter_raw())
        stack.settle()
        assert quotas.use()[0].num_open == 0
        assert remaining() < 1000


def test_one_tenant_s_streams_leave_room_for_another(tmp_path: Path) -> None:
    with running_stack(tmp_path, engine=HashEngine(step_s=0.05)) as stack:
        set_limits(stack, "acme", TenantLimits(open_requests=1))
        other = make_key(stack.config, tenant="other")
        body = chat_body(stream=True, max_tokens=200, ignore_eos=True)
        with stack.client.stream("POST", "/v1/chat/completions", json=body) as held:
            assert held.status_code == 200
            assert error_of(stack.chat())["code"] == "rate_limit_exceeded"
            headers = {"authorization": f"Bearer {other}"}
            free = stack.client.post("/v1/chat/completions", json=chat_body(), headers=headers)
            assert free.status_code == 200
        wait_until(lambda: stack.chat().status_code == 200)


@pytest.mark.parametrize(
    ("flags", "max_open"),
    [
        ({"gateway__max_concurrent_streams": 1}, 1),
        ({"gateway__max_concurrent_streams": 8}, 6),
        ({"gateway__max_concurrent_streams": 8, "gateway__quota__open_requests": 7}, 7),
        ({"gateway__max_concurrent_streams": 8, "gateway__quota__open_requests": 0}, None),
    ],
)
def test_a_tenant_s_share_of_the_places_follows_their_number(
    tmp_path: Path, flags: dict[str, int], max_open: int | None
) -> None:
    app = build_gateway_app(make_config(tmp_path, **flags))
    app.services.quotas.enter(by())
    (use,) = app.services.quotas.use()
    assert use.max_open == max_open


def test_the_priority_of_a_key_reaches_the_engine(tmp_path: Path) -> None:
    engine = ListeningEngine()
    with running_stack(tmp_path, engine=engine) as stack:
        urgent = make_key(stack.config, tenant="acme", priority=2)
        for headers in ({}, {"authorization": f"Bearer {urgent}", "starshade-priority": "-2"}):
            sent = stack.client.post("/v1/chat/completions", json=chat_body(), headers=headers)
            assert sent.status_code == 200
    assert [request.priority for request in engine.seen] == [0, 2]


def test_a_key_is_good_for_its_scopes_alone(tmp_path: Path) -> None:
    with running_stack(tmp_path) as stack:
        narrow = make_key(stack.config, tenant="acme", scopes=[Scope.METRICS])
        headers = {"authorization": f"Bearer {narrow}"}
        sent = stack.client.post("/v1/chat/completions", json=chat_body(), headers=headers)
        assert (sent.status_code, error_of(sent)["code"]) == (403, "insufficient_scope")
        assert stack.client.get("/v1/models", headers=headers).status_code == 200


def test_operators_see_counts_and_who_uses_what(tmp_path: Path) -> None:
    with running_stack(tmp_path, gateway__quota__requests_per_minute=5) as stack:
        assert stack.chat().status_code == 200
        assert stack.chat(model="none").status_code == 404

        def get(path: str, *scopes: Scope) -> httpx.Response:
            key = make_key(stack.config, tenant="ops", scopes=scopes)
            return stack.client.get(path, headers={"authorization": f"Bearer {key}"})

        for path, scope in (("/metrics", Scope.METRICS), ("/admin/tenants", Scope.ADMIN)):
            refused = get(path, *set(Scope) - {scope})
            assert (refused.status_code, refused.json()["code"]) == (403, "insufficient_scope")
        page = get("/metrics", Scope.METRICS)
        assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
        lines = page.text.splitlines()
        chats = 'starshade_requests_total{path="/v1/chat/completions"'
        assert f'{chats},code="ok"}} 1' in lines
        assert f'{chats},code="model_not_found"}} 1' in lines
        assert 'starshade_worker_serving{worker="worker-0"} 1' in lines
        assert "starshade_open_requests 0" in lines
        assert re.search(r'^starshade_tokens_total\{type="output"\} [1-9]', page.text, re.MULTILINE)
        (use,) = get("/admin/tenants", Scope.ADMIN).json()["data"]
        assert (use["tenant"], use["open_requests"], use["max_open_requests"]) == ("acme", 0, 192)
        assert (use["requests_per_minute"], use["remaining_requests"]) == (5, 3)
        assert (use["tokens_per_minute"], use["remaining_tokens"]) == (None, None)

"""What does the time to a first token tell of other tenants' prompts?  Attack 24.

A prefix that somebody asked before is faster [CVE-2025-46570]; a probe must not learn that it was
another tenant who did. Each token of a prompt that is computed costs this engine the same time, so
that a shared block would show. The control is the tenant itself, who does hit its own prefixes.
"""

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from gateway.auth import cache_salt
from runtime.plan import StepPlan
from tests.gateway.support import (
    BLOCK_SIZE,
    HashEngine,
    Stack,
    chat_body,
    make_key,
    running_stack,
    wait_until,
)
from tests.support.patience import PATIENCE_S
from tests.support.statistics import ks_p_value

PROMPT_CHARS = 95  # with the role 96 tokens, 24 blocks of 64
TOKEN_S = 0.0002
NUM_PROBES = 40
SAME = 0.01  # of equal distributions one in a hundred is below; two in a row are one in 10,000
DIFFERENT = 1e-3  # of the control: what a busy machine adds to both makes them no more alike
FLOOD = 12


def pay_for_each_token(plan: StepPlan) -> None:
    time.sleep(TOKEN_S * len(plan.token_ids))


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    engine = HashEngine()
    engine.runner.before_run = pay_for_each_token
    with running_stack(tmp_path, engine=engine) as running:
        yield running


@pytest.fixture
def prompts() -> Iterator[str]:
    """Prompts of one length that have not even their first block in common."""
    rng = random.Random(24)
    return ("".join(rng.choices("abcdefghij", k=PROMPT_CHARS)) for _ in itertools.count())


class Tenant:
    """Somebody with a key, who asks for one token and looks at the clock."""

    def __init__(self, stack: Stack, name: str, **headers: str) -> None:
        self._client = stack.client
        key = make_key(stack.config, tenant=name)
        self._headers = {"authorization": f"Bearer {key}", **headers}

    def ask(self, prompt: str, *, max_tokens: int = 1) -> httpx.Response:
        messages = [{"role": "user", "content": prompt}]
        body = chat_body(messages=messages, max_tokens=max_tokens, ignore_eos=True)
        answer = self._client.post("/v1/chat/completions", json=body, headers=self._headers)
        assert answer.status_code == 200
        return answer

    def time_s(self, prompt: str) -> float:
        started_s = time.perf_counter()
        self.ask(prompt)
        return time.perf_counter() - started_s

    def cached_tokens(self, prompt: str) -> int:
        details = self.ask(prompt).json()["usage"]["prompt_tokens_details"]
        cached: int = details["cached_tokens"]
        return cached


def p_value(
    probe: Callable[[str], float], victim: Callable[[str], object], prompts: Iterator[str]
) -> float:
    """Of the probe's times for prompts that the victim asked before, and for fresh ones.

    Which of the two is asked first is left to chance, so that their order cannot tell.
    """
    rng, times = random.Random(42), dict[bool, list[float]]({True: [], False: []})
    for _ in range(NUM_PROBES):
        asked = next(prompts)
        victim(asked)
        pair = [(True, asked), (False, next(prompts))]
        rng.shuffle(pair)
        for was_asked, prompt in pair:
            times[was_asked].append(probe(prompt))
    return ks_p_value(times[True], times[False])


def test_another_tenant_s_prefixes_take_as_long_as_new_ones(
    stack: Stack, prompts: Iterator[str]
) -> None:
    victim, attacker = Tenant(stack, "victim"), Tenant(stack, "attacker")
    found = p_value(attacker.time_s, victim.ask, prompts)
    assert found > SAME or p_value(attacker.time_s, victim.ask, prompts) > SAME


def test_a_tenant_s_own_prefixes_do_not(stack: Stack, prompts: Iterator[str]) -> None:
    """The control: the measure sees a hit when there is one."""
    victim = Tenant(stack, "victim")
    assert p_value(victim.time_s, victim.ask, prompts) < DIFFERENT


def test_no_block_is_shared_whatever_the_client_says(stack: Stack, prompts: Iterator[str]) -> None:
    prompt = next(prompts)
    victim = Tenant(stack, "victim")
    assert victim.cached_tokens(prompt) == 0
    assert victim.cached_tokens(prompt) >= PROMPT_CHARS - BLOCK_SIZE
    salt = cache_salt(stack.config.paths.salt_key.read_bytes(), "victim").hex()
    for number, headers in enumerate(({}, {"starshade-cache-salt": salt}, {"cache_salt": salt})):
        assert Tenant(stack, f"attacker-{number}", **headers).cached_tokens(prompt) == 0
    body = chat_body(cache_salt=salt)
    refused = stack.client.post("/v1/chat/completions", json=body)
    assert refused.json()["error"]["code"] == "unsupported_parameter"


def test_two_keys_of_one_tenant_share(stack: Stack, prompts: Iterator[str]) -> None:
    """Which is why a tenant is whoever may learn of each other's prompts."""
    prompt = next(prompts)
    Tenant(stack, "acme").ask(prompt)
    assert Tenant(stack, "acme").cached_tokens(prompt) > 0


def test_at_one_time_two_tenants_hold_no_block_together(
    stack: Stack, prompts: Iterator[str]
) -> None:
    prompt, are_both_there = next(prompts), threading.Event()

    def hold(_plan: StepPlan) -> None:
        assert are_both_there.wait(PATIENCE_S)

    stack.engine.runner.before_run = hold
    tenants = [Tenant(stack, "victim"), Tenant(stack, "attacker")]
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(tenant.ask, prompt, max_tokens=24) for tenant in tenants]
        wait_until(lambda: stack.worker_stats()["open"] == 2)
        are_both_there.set()
        for answer in asked:
            answer.result()
    together = [plan for plan in stack.engine.runner.plans if plan.num_sequences == 2]
    assert together
    for plan in together:
        first, second = ({int(b) for b in table if b >= 0} for table in plan.block_tables[:2])
        assert not first & second


def test_driving_a_prefix_out_tells_nothing_of_it(stack: Stack, prompts: Iterator[str]) -> None:
    """The attacker's own blocks are all that it can find again, or find gone."""
    victim, attacker = Tenant(stack, "victim"), Tenant(stack, "attacker")
    secret, unasked = next(prompts), next(prompts)
    victim.ask(secret)
    for prompt in itertools.islice(prompts, FLOOD):
        attacker.ask(prompt)
    assert victim.cached_tokens(secret) == 0  # it is gone
    assert attacker.cached_tokens(secret) == attacker.cached_tokens(unasked) == 0

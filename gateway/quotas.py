"""How much may a tenant ask for now?  Requests and tokens a minute, and requests at one time.

A request is admitted twice: by count before its body is read, and by its estimated tokens before
it goes to a worker. What it really used is settled when it ends, however it ends. Limits persist;
what was consumed is kept in this process, so that a restart begins with full buckets.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from gateway import gcra
from gateway.auth import Principal, TenantLimits
from gateway.calls import Call
from gateway.facts import RequestFacts
from gateway.gcra import Rate
from gateway.problems import GatewayError

ASSUMED_OUTPUT_TOKENS: Final = 256  # of an answer that the client sets no bound to
OPEN_RETRY_S: Final = 1
MAX_IDLE_ACCOUNTS: Final = 1024  # beyond these, tenants whose buckets are full are forgotten
_COMPUTED_IN_VAIN: Final = frozenset({"client_disconnected", "grammar_failed", "request_timeout"})
_NS_PER_S: Final = 1_000_000_000
_NS_PER_MS: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantUse:
    """How much of what one tenant has taken; None where there is no limit."""

    tenant: str
    num_open: int
    max_open: int | None
    requests_per_minute: int | None
    remaining_requests: int | None
    tokens_per_minute: int | None
    remaining_tokens: int | None


@dataclass(slots=True)
class _Account:
    """What one tenant has taken, and what it could when it last asked."""

    num_open: int = 0
    open_tokens: int = 0
    max_open: int = 0
    requests: Rate | None = None
    tokens: Rate | None = None
    requests_full_ns: int = 0
    tokens_full_ns: int = 0

    def is_as_new(self, now_ns: int) -> bool:
        return self.num_open == 0 and max(self.requests_full_ns, self.tokens_full_ns) <= now_ns


@dataclass(slots=True, kw_only=True)
class Quotas:
    """All tenants' buckets; one per process, on the event loop only.

    `defaults` are for tenants without limits of their own; 0 is no limit. `max_open_tokens` bounds
    what all open requests together are estimated at, where no request counts as more than a quarter
    of it; one tenant's have three quarters of it at most.
    """

    defaults: TenantLimits
    max_open_tokens: int
    clock_ns: Callable[[], int]
    open_tokens: int = 0
    _accounts: dict[str, _Account] = field(default_factory=dict, repr=False)
    _sweep_at: int = MAX_IDLE_ACCOUNTS

    def enter(self, principal: Principal) -> "Admission":
        """Counts one request; `Admission.end` must follow.

        Raises: GatewayError `rate_limit_exceeded`.
        """
        account, limits, defaults = self._account(principal.tenant), principal.limits, self.defaults
        max_open = account.max_open = _chosen(limits.open_requests, defaults.open_requests)
        account.requests = _rate(limits.requests_per_minute, defaults.requests_per_minute)
        account.tokens = _rate(limits.tokens_per_minute, defaults.tokens_per_minute)
        if max_open and account.num_open >= max_open:
            raise _refusal(
                f"{max_open} requests of this tenant are open, as many as may be.",
                {"retry-after": str(OPEN_RETRY_S)},
            )
        admission = Admission(quotas=self, account=account)
        admission.count()
        return admission

    def use(self) -> list[TenantUse]:
        """Of the tenants that have asked lately, by name."""
        now_ns = self.clock_ns()
        return [_use(name, account, now_ns) for name, account in sorted(self._accounts.items())]

    def _account(self, tenant: str) -> _Account:
        account = self._accounts.get(tenant)
        if account is None:
            if len(self._accounts) >= self._sweep_at:
                self._forget_idle()
            account = self._accounts[tenant] = _Account()
        return account

    def _forget_idle(self) -> None:
        now_ns = self.clock_ns()
        kept = {name: each for name, each in self._accounts.items() if not each.is_as_new(now_ns)}
        self._accounts = kept
        self._sweep_at = max(MAX_IDLE_ACCOUNTS, 2 * len(kept))


class Admission:
    """One request's claim: `admit` before it is sent on, `end` when it has ended."""

    def __init__(self, *, quotas: Quotas, account: _Account) -> None:
        self._quotas = quotas
        self._account = account
        self._requests = account.requests  # a limit that changes meanwhile is for later ones
        self._tokens = account.tokens
        self._call: Call | None = None
        self._taken_tokens = 0  # of the tenant's bucket
        self._open_tokens = 0  # of what may be open
        self._is_open = False

    def count(self) -> None:
        """Raises: GatewayError `rate_limit_exceeded`, and then nothing is open."""
        now_ns, account, rate = self._quotas.clock_ns(), self._account, self._requests
        if rate is not None:
            wait_ns = gcra.wait_ns(rate, account.requests_full_ns, 1, now_ns=now_ns)
            if wait_ns:
                raise self._too_many("requests", rate.limit, wait_ns)
            account.requests_full_ns = gcra.take(rate, account.requests_full_ns, 1, now_ns=now_ns)
        account.num_open += 1
        self._is_open = True

    def admit(self, call: Call) -> None:
        """Takes what the call is estimated at.

        Raises: GatewayError `rate_limit_exceeded`; `overloaded` when all tenants' open requests
        are estimated at too much, which one alone never is.
        """
        quotas, account, rate = self._quotas, self._account, self._tokens
        tokens, most = estimated_tokens(call), quotas.max_open_tokens
        open_tokens = min(tokens, max(most // 4, 1))
        if account.open_tokens + open_tokens > three_quarters(most):
            raise _refusal(
                "Too many tokens of this tenant are being computed; retry shortly.",
                {"retry-after": str(OPEN_RETRY_S)},
            )
        if quotas.open_tokens + open_tokens > most:
            raise GatewayError("overloaded", "Too many tokens are being computed; retry shortly.")
        if rate is not None:
            now_ns = quotas.clock_ns()
            wait_ns = gcra.wait_ns(rate, account.tokens_full_ns, tokens, now_ns=now_ns)
            if wait_ns:
                raise self._too_many("tokens", rate.limit, wait_ns)
            account.tokens_full_ns = gcra.take(rate, account.tokens_full_ns, tokens, now_ns=now_ns)
        quotas.open_tokens += open_tokens
        account.open_tokens += open_tokens
        self._call, self._taken_tokens, self._open_tokens = call, tokens, open_tokens

    def end(self, facts: RequestFacts) -> None:
        """Charges what was used; idempotent."""
        if not self._is_open:
            return
        self._is_open = False
        self._account.num_open -= 1
        self._account.open_tokens -= self._open_tokens
        self._quotas.open_tokens -= self._open_tokens
        if self._tokens is not None and self._call is not None:
            self._account.tokens_full_ns = gcra.correct(
                self._tokens,
                self._account.tokens_full_ns,
                taken=self._taken_tokens,
                used=used_tokens(self._call, facts),
            )

    def headers(self) -> dict[str, str]:
        """OpenAI's `x-ratelimit-*`, of the limits there are."""
        now_ns, account, shown = self._quotas.clock_ns(), self._account, dict[str, str]()
        for name, rate, full_ns in (
            ("requests", self._requests, account.requests_full_ns),
            ("tokens", self._tokens, account.tokens_full_ns),
        ):
            if rate is not None:
                left = gcra.remaining(rate, full_ns, now_ns=now_ns)
                shown[f"x-ratelimit-limit-{name}"] = str(rate.limit)
                shown[f"x-ratelimit-remaining-{name}"] = str(left)
                shown[f"x-ratelimit-reset-{name}"] = duration(max(full_ns - now_ns, 0))
        return shown

    def _too_many(self, what: str, limit: int, wait_ns: int) -> GatewayError:
        wait_s = math.ceil(wait_ns / _NS_PER_S)
        headers = {**self.headers(), "retry-after": str(wait_s)}
        return _refusal(f"This tenant has {limit} {what} a minute; retry in {wait_s} s.", headers)


def three_quarters(most: int) -> int:
    """One tenant's share of what there is for all; at least 1, if there is one."""
    return most - most // 4


def estimated_tokens(call: Call) -> int:
    """Of prompt and answers together, before anything is tokenized."""
    per_choice = ASSUMED_OUTPUT_TOKENS if call.max_tokens is None else call.max_tokens
    return call.estimated_prompt_tokens + call.num_choices * per_choice


def used_tokens(call: Call, facts: RequestFacts) -> int:
    """What an ended request is charged: the worker's own count, else what can be known of it.

    One that no worker took used nothing. One that was cut short has cost its prompt and what was
    streamed, also where that is nothing yet; leaving early is no way around a limit.
    """
    timeline = facts.timeline
    if facts.has_usage:
        return (timeline.prompt_tokens or 0) + timeline.output_tokens
    was_sent = timeline.dispatched_ns is not None
    if facts.has_answer or (was_sent and facts.error_code in _COMPUTED_IN_VAIN):
        return call.estimated_prompt_tokens + timeline.output_tokens
    return 0


def duration(span_ns: int) -> str:
    """As OpenAI's headers write it: `850ms`, `12s`, `1m30s`; rounded up."""
    if span_ns < _NS_PER_S:
        return f"{math.ceil(span_ns / _NS_PER_MS)}ms"
    minutes, seconds = divmod(math.ceil(span_ns / _NS_PER_S), 60)
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"


def _use(tenant: str, account: _Account, now_ns: int) -> TenantUse:
    requests, tokens = account.requests, account.tokens
    return TenantUse(
        tenant=tenant,
        num_open=account.num_open,
        max_open=account.max_open or None,
        requests_per_minute=None if requests is None else requests.limit,
        remaining_requests=_left(requests, account.requests_full_ns, now_ns),
        tokens_per_minute=None if tokens is None else tokens.limit,
        remaining_tokens=_left(tokens, account.tokens_full_ns, now_ns),
    )


def _left(rate: Rate | None, full_ns: int, now_ns: int) -> int | None:
    return None if rate is None else gcra.remaining(rate, full_ns, now_ns=now_ns)


def _chosen(own: int | None, default: int | None) -> int:
    return (default or 0) if own is None else own


def _rate(own: int | None, default: int | None) -> Rate | None:
    limit = _chosen(own, default)
    return Rate(limit=limit) if limit else None


def _refusal(message: str, headers: Mapping[str, str]) -> GatewayError:
    return GatewayError("rate_limit_exceeded", message, headers=headers)

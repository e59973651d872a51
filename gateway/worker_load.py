"""Which of several workers answers first, and which of them is better left alone?

`WorkerLoad` predicts the time to the first token from what the worker was seen to do and what waits
there now. `Breaker` stops requests to a worker that fails them although it attests. Both are told
the time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from telemetry.metrics import NS_PER_S

OVERHEAD_TOKENS: Final = 64  # what a request costs besides its prompt, in tokens of prompt
OPEN_TOKENS: Final = 32  # what a running answer adds to the first token of another
SMOOTHING: Final = 0.2  # weight of the newest observation
FORGET_NS: Final = 60 * NS_PER_S  # half-life of what was observed, while nothing new is
FAILURES_TO_OPEN: Final = 3  # in a row
FIRST_PAUSE_NS: Final = 1 * NS_PER_S
LAST_PAUSE_NS: Final = 16 * NS_PER_S


@dataclass(slots=True, eq=False)
class Ticket:
    """One request at one worker, from dispatch to its end."""

    load: "WorkerLoad"
    tokens: int
    work: float  # with what was ahead of it, in tokens
    started_ns: int
    is_waiting: bool = True
    is_open: bool = True

    def first_token(self, now_ns: int) -> None:
        """The first one is there: what it took is learnt, and nobody waits behind it any more."""
        if self.is_waiting:
            self._leave_queue()
            self.load.learn((now_ns - self.started_ns) / self.work, now_ns)

    def close(self) -> None:
        """The request is over; idempotent."""
        self._leave_queue()
        if self.is_open:
            self.is_open = False
            self.load.num_open -= 1

    def _leave_queue(self) -> None:
        if self.is_waiting:
            self.is_waiting = False
            self.load.waiting_tokens -= self.tokens


@dataclass(slots=True)
class WorkerLoad:
    """What is known of one worker's speed, and what it has to do now."""

    waiting_tokens: int = 0  # of prompts without a first token
    num_open: int = 0
    ns_per_token: float | None = None
    learnt_ns: int = 0

    def open(self, tokens: int, now_ns: int) -> Ticket:
        """A request of so many prompt tokens goes there."""
        ticket = Ticket(load=self, tokens=tokens, work=self.work(tokens), started_ns=now_ns)
        self.waiting_tokens += tokens
        self.num_open += 1
        return ticket

    def work(self, tokens: int) -> float:
        """What has to be computed until such a request has its first token, in tokens."""
        return OVERHEAD_TOKENS + tokens + self.waiting_tokens + OPEN_TOKENS * self.num_open

    def learn(self, ns_per_token: float, now_ns: int) -> None:
        known = self.ns_per_token
        self.ns_per_token = (
            ns_per_token if known is None else known + SMOOTHING * (ns_per_token - known)
        )
        self.learnt_ns = now_ns

    def speed(self, usual: float, now_ns: int) -> float:
        """Time a token, in ns: as observed, on its way back to what is `usual` among its peers."""
        if self.ns_per_token is None:
            return usual
        kept: float = 0.5 ** ((now_ns - self.learnt_ns) / FORGET_NS)
        return usual + (self.ns_per_token - usual) * kept


def expected_ttft_ns(loads: Sequence[WorkerLoad], *, tokens: int, now_ns: int) -> list[float]:
    """For a request of so many prompt tokens, at each of `loads`.

    A worker that nobody has observed is taken to be as quick as the quickest that was.
    """
    observed = [load.ns_per_token for load in loads if load.ns_per_token is not None]
    usual = min(observed, default=1.0)
    return [load.speed(usual, now_ns) * load.work(tokens) for load in loads]


@dataclass(slots=True)
class Breaker:
    """Closed it lets requests through, open none; after a pause one request may try to close it."""

    num_failures: int = 0
    pause_ns: int = FIRST_PAUSE_NS
    opened_ns: int | None = field(default=None)
    trial: Ticket | None = None  # the request that tries

    def allows(self, now_ns: int) -> bool:
        if self.opened_ns is None:
            return True
        return self.trial is None and now_ns - self.opened_ns >= self.pause_ns

    def begin(self, ticket: Ticket) -> None:
        """A request goes there; of an open one it is the one that tries."""
        if self.opened_ns is not None and self.trial is None:
            self.trial = ticket

    def failed(self, now_ns: int, ticket: Ticket | None) -> None:
        """Once it is open, only the request that tries has anything new to say."""
        self.num_failures += 1
        if self.opened_ns is None:
            if self.num_failures >= FAILURES_TO_OPEN:
                self.opened_ns = now_ns
        elif ticket is not None and ticket is self.trial:
            self.pause_ns = min(2 * self.pause_ns, LAST_PAUSE_NS)
            self.opened_ns, self.trial = now_ns, None

    def succeeded(self) -> None:
        """Also when the worker is known to have begun anew."""
        self.num_failures, self.pause_ns = 0, FIRST_PAUSE_NS
        self.opened_ns = self.trial = None

    def left(self, ticket: Ticket) -> None:
        """A request is over; where it tried and told nothing of the worker, another one may."""
        if ticket is self.trial:
            self.trial = None

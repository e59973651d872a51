"""Who is next?  Priority first, then the tenant that was served least, with a bound on waiting.

Among requests of one priority tenants take turns by tokens served (a virtual token counter [Sheng
et al., Fairness in Serving Large Language Models, OSDI 2024]): computed prompt tokens and output
tokens count, cached ones do not. A tenant that comes back from idleness starts no lower than the
least counter in use, so nobody saves up a burst. Within a tenant the order is that of arrival; a
preempted sequence goes before the others of its priority, since somebody reads its output.

A sequence that ``max_overtakes`` later ones were admitted before is *aged*: aged ones go first, in
order of arrival, whatever their priority and tenant. While a sequence waits for a prefix that
another computes nobody overtakes it: it gains by waiting, and the scheduler bounds that.
"""

from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final

from runtime.sequence import Sequence

_MAX_IDLE_TENANTS: Final = 4096  # whose counters are remembered
_PREEMPTIONS_TO_AGE: Final = 2


def _arrival_idx(sequence: Sequence) -> int:
    return sequence.arrival_idx


class TenantCounters:
    """Tokens served to each tenant, comparable among those who have work now."""

    def __init__(self) -> None:
        self._served: dict[str, int] = {}
        self._num_live: dict[str, int] = {}  # sequences in the engine

    def __getitem__(self, tenant: str) -> int:
        return self._served[tenant]

    def enter(self, tenant: str) -> None:
        """One more sequence of the tenant is in the engine."""
        if tenant not in self._num_live:
            least = min((self._served[other] for other in self._num_live), default=0)
            self._served[tenant] = max(self._served.pop(tenant, 0), least)
            self._num_live[tenant] = 0
        self._num_live[tenant] += 1

    def leave(self, tenant: str) -> None:
        """One sequence less; the counters of tenants long idle are forgotten."""
        self._num_live[tenant] -= 1
        if self._num_live[tenant] > 0:
            return
        del self._num_live[tenant]
        if len(self._served) - len(self._num_live) > _MAX_IDLE_TENANTS:
            del self._served[next(name for name in self._served if name not in self._num_live)]

    def charge(self, tenant: str, num_tokens: int) -> None:
        self._served[tenant] += num_tokens


class WaitingQueue:
    """Waiting sequences; ``arrival_idx`` is unique and grows with arrival."""

    def __init__(self, tenants: TenantCounters, *, max_overtakes: int) -> None:
        self.tenants = tenants
        self._max_overtakes = max_overtakes
        self._arrivals: list[Sequence] = []  # all of them, oldest first
        self._aged: list[Sequence] = []  # oldest first
        self._preempted: list[Sequence] = []  # those not aged, oldest first
        self._levels: dict[int, dict[str, deque[Sequence]]] = {}  # the others
        self._num_of: Counter[str] = Counter()  # by tenant

    def __len__(self) -> int:
        return len(self._arrivals)

    @property
    def num_aged(self) -> int:
        return len(self._aged)

    def num_of(self, tenant: str) -> int:
        """How many of the tenant's sequences wait."""
        return self._num_of[tenant]

    def add(self, sequence: Sequence) -> None:
        """A new sequence, younger than all others, or one that was preempted."""
        self._num_of[sequence.request.tenant] += 1
        insort(self._arrivals, sequence, key=_arrival_idx)
        if sequence.num_preemptions >= _PREEMPTIONS_TO_AGE:
            sequence.is_aged = True
        if sequence.is_aged:
            insort(self._aged, sequence, key=_arrival_idx)
        elif sequence.num_preemptions:
            insort(self._preempted, sequence, key=_arrival_idx)
        else:
            level = self._levels.setdefault(sequence.request.priority, {})
            level.setdefault(sequence.request.tenant, deque()).append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """It was admitted, or left."""
        tenant = sequence.request.tenant
        self._num_of[tenant] -= 1
        if not self._num_of[tenant]:
            del self._num_of[tenant]
        del self._arrivals[bisect_left(self._arrivals, sequence.arrival_idx, key=_arrival_idx)]
        self._unlink(sequence)

    def count_overtakes(self, admitted: Sequence) -> None:
        """``admitted`` was let in: it passed every waiting sequence that came before it."""
        aged = []
        for sequence in self._arrivals:
            if sequence.arrival_idx > admitted.arrival_idx:
                break
            if sequence.awaited_key is None and not sequence.is_aged:
                sequence.num_overtakes += 1
                if sequence.num_overtakes >= self._max_overtakes:
                    aged.append(sequence)
        for sequence in aged:
            self._unlink(sequence)
            sequence.is_aged = True
            insort(self._aged, sequence, key=_arrival_idx)

    def candidates(self) -> Iterator[Sequence]:
        """All sequences, next one first; the queue must not change while this is read."""
        yield from self._aged
        for priority in sorted({*self._levels, *_priorities(self._preempted)}, reverse=True):
            for sequence in self._preempted:
                if sequence.request.priority == priority:
                    yield sequence
            yield from self._take_turns(self._levels.get(priority, {}))

    def _take_turns(self, level: dict[str, deque[Sequence]]) -> Iterator[Sequence]:
        if len(level) == 1:
            yield from next(iter(level.values()))
            return
        turns = []
        for tenant, members in level.items():
            rest = iter(members)
            first = next(rest)
            turns.append((self.tenants[tenant], first.arrival_idx, first, rest))
        heapify(turns)
        while turns:
            served, _, sequence, rest = heappop(turns)
            yield sequence
            if (follower := next(rest, None)) is not None:
                served += sequence.num_tokens
                heappush(turns, (served, follower.arrival_idx, follower, rest))

    def _unlink(self, sequence: Sequence) -> None:
        if sequence.is_aged:
            self._aged.remove(sequence)
        elif sequence.num_preemptions:
            self._preempted.remove(sequence)
        else:
            level = self._levels[sequence.request.priority]
            members = level[sequence.request.tenant]
            members.remove(sequence)
            if not members:
                del level[sequence.request.tenant]
            if not level:
                del self._levels[sequence.request.priority]


def _priorities(sequences: list[Sequence]) -> set[int]:
    return {sequence.request.priority for sequence in sequences}

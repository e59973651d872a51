"""Does everybody get their turn: by priority, by tenant, and in the end by patience?"""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime import GenerationRequest, RequestRejected, SamplingParams
from runtime.sequence import MAX_PRIORITY, MAX_TENANT_CHARS, MIN_PRIORITY, Sequence
from runtime.waiting_queue import TenantCounters, WaitingQueue
from tests.runtime.harness import PATIENT, request
from tests.runtime.simulation import Simulation


class Queue:
    """A queue and the sequences put into it, admitted one at a time."""

    def __init__(self, *, max_overtakes: int = 1000) -> None:
        self.tenants = TenantCounters()
        self.queue = WaitingQueue(self.tenants, max_overtakes=max_overtakes)
        self.num_added = 0

    def add(
        self, name: str, *, tenant: str = "", priority: int = 0, num_tokens: int = 10
    ) -> Sequence:
        one = request(name, (1,) * num_tokens, tenant=tenant, priority=priority)
        sequence = Sequence(one, rng_seed=0, max_output_tokens=8)
        sequence.arrival_idx = self.num_added
        self.num_added += 1
        self.tenants.enter(tenant)
        self.queue.add(sequence)
        return sequence

    def admit(self) -> str:
        sequence = next(self.queue.candidates())
        self.queue.remove(sequence)
        self.queue.count_overtakes(sequence)
        self.tenants.charge(sequence.request.tenant, sequence.num_tokens)
        return sequence.request.request_id

    def drain(self) -> list[str]:
        return [self.admit() for _ in range(len(self.queue))]


def test_without_priorities_and_tenants_it_is_a_queue() -> None:
    queue = Queue()
    for name in "dacb":
        queue.add(name)
    assert queue.drain() == list("dacb")


def test_higher_priorities_go_first_and_equals_in_order() -> None:
    queue = Queue()
    for name, priority in (("a", 0), ("b", 1), ("c", -1), ("d", 1)):
        queue.add(name, priority=priority)
    assert queue.drain() == list("bdac")


def test_a_tenant_with_many_requests_does_not_hold_up_one_with_few() -> None:
    queue = Queue()
    for idx in range(6):
        queue.add(f"many{idx}", tenant="many")
    for idx in range(2):
        queue.add(f"few{idx}", tenant="few")
    assert queue.drain()[:4] == ["many0", "few0", "many1", "few1"]


def test_turns_are_by_tokens_not_by_requests() -> None:
    queue = Queue()
    for idx in range(8):
        queue.add(f"large{idx}", tenant="large", num_tokens=300)
        queue.add(f"small{idx}", tenant="small", num_tokens=100)
    first = Counter(name[:5] for name in queue.drain()[:8])
    assert first == {"large": 2, "small": 6}


def test_the_candidates_come_in_the_order_of_admission() -> None:
    queue = Queue()
    for idx in range(5):
        for tenant, num_tokens in (("a", 50), ("b", 100)):
            queue.add(f"{tenant}{idx}", tenant=tenant, num_tokens=num_tokens)
    foreseen = [sequence.request.request_id for sequence in queue.queue.candidates()]
    assert foreseen == queue.drain()


def test_who_comes_back_from_idleness_has_saved_nothing_up() -> None:
    queue = Queue()
    busy = [queue.add(f"busy{idx}", tenant="busy", num_tokens=1000) for idx in range(3)]
    for _ in busy:
        queue.admit()
    for idx in range(4):
        queue.add(f"new{idx}", tenant="new", num_tokens=100)
        queue.add(f"more{idx}", tenant="busy", num_tokens=100)
    assert queue.drain()[:4] == ["new0", "more0", "new1", "more1"]


def test_a_burst_is_remembered_beyond_a_moment_of_idleness() -> None:
    queue = Queue()
    queue.add("other", tenant="other")
    queue.add("burst", tenant="burst", num_tokens=5000)
    queue.drain()
    queue.tenants.leave("burst")
    for idx in range(3):
        queue.add(f"burst{idx}", tenant="burst")
        queue.add(f"other{idx}", tenant="other")
    assert queue.drain() == ["other0", "other1", "other2", "burst0", "burst1", "burst2"]


def test_idle_tenants_are_forgotten_in_the_end() -> None:
    tenants = TenantCounters()
    for idx in range(10_000):
        tenants.enter(f"t{idx}")
        tenants.charge(f"t{idx}", 10)
        tenants.leave(f"t{idx}")
    assert len(tenants._served) <= 4097


@pytest.mark.parametrize("max_overtakes", [1, 3, 10])
def test_nobody_is_overtaken_more_often_than_allowed(max_overtakes: int) -> None:
    queue = Queue(max_overtakes=max_overtakes)
    queue.add("low", priority=-1)
    order = []
    for idx in range(20):
        queue.add(f"high{idx}", priority=1)
        order.append(queue.admit())
    assert order.index("low") == max_overtakes


@PATIENT
@given(
    adds=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(-1, 1), st.integers(1, 50)), max_size=60
    ),
    admits=st.lists(st.booleans(), min_size=60, max_size=60),
    max_overtakes=st.integers(1, 8),
)
def test_the_bound_on_overtaking_holds_in_any_mix(
    adds: list[tuple[str, int, int]], admits: list[bool], max_overtakes: int
) -> None:
    queue = Queue(max_overtakes=max_overtakes)
    order: list[str] = []
    for idx, (tenant, priority, num_tokens) in enumerate(adds):
        queue.add(str(idx), tenant=tenant, priority=priority, num_tokens=num_tokens)
        if admits[idx]:
            order.append(queue.admit())
    order += queue.drain()
    assert sorted(order, key=int) == [str(idx) for idx in range(len(adds))]
    for place, name in enumerate(order):
        later = sum(int(other) > int(name) for other in order[:place])
        # Those that have aged too go in order of arrival, which is no overtaking.
        assert later <= max_overtakes


def test_preempted_ones_go_first_within_their_priority_and_age() -> None:
    queue = Queue()
    for name, priority in (("old", 0), ("urgent", 1), ("back", 0), ("twice", -1)):
        queue.add(name, priority=priority)
    back, twice = list(queue.queue.candidates())[2:]
    for sequence, num_preemptions in ((back, 1), (twice, 2)):
        queue.queue.remove(sequence)
        sequence.num_preemptions = num_preemptions
        queue.queue.add(sequence)
    assert queue.drain() == ["twice", "urgent", "back", "old"]


def test_a_tenants_flood_leaves_the_other_its_half() -> None:
    sim = Simulation(max_sequences=4)
    for _ in range(60):
        sim.arrive(0, 64, max_tokens=32, tenant="flood")
    quiet = [sim.arrive(0.2, 64, max_tokens=32, tenant="quiet") for _ in range(6)]
    sim.run()
    quiet_end_s = max(client.token_s[-1] for client in quiet)
    flood = [client for client in sim.clients if client not in quiet]
    num_flood_before = sum(client.token_s[-1] <= quiet_end_s for client in flood)
    assert num_flood_before <= 24


def test_cached_tokens_are_not_charged() -> None:
    sim = Simulation(max_sequences=1)
    shared = tuple(range(1, 1025))
    sim.arrive(0, (*shared, 7), max_tokens=1, tenant="warm")
    sim.run()
    for idx in range(4):
        sim.arrive(sim.now_s, (*shared, 100 + idx), max_tokens=1, tenant="warm")
        sim.arrive(sim.now_s, tuple(range(9000 * (idx + 1), 9000 * (idx + 1) + 100)), max_tokens=1)
    sim.run()
    order = sorted(sim.clients[1:], key=lambda client: client.token_s[0])
    # Each of the warm ones costs a token or two: all come after the first cold one at the latest.
    assert [client.sequence.request.tenant for client in order[:5]].count("warm") == 4


def test_urgent_requests_pass_in_the_middle_of_a_prompt() -> None:
    sim = Simulation(max_batch_tokens=128)
    low = sim.arrive(0, 4096, max_tokens=1, priority=-1)
    urgent = sim.arrive(0.1, 512, max_tokens=1, priority=1)
    sim.run()
    assert urgent.token_s[0] < low.token_s[0]
    alone_s = 512 / 96 * 0.06  # three quarters of each step of 128 tokens
    assert urgent.ttft_s < 1.5 * alone_s


@pytest.mark.parametrize("priority", [MIN_PRIORITY - 1, MAX_PRIORITY + 1])
def test_a_priority_out_of_range_is_refused(priority: int) -> None:
    with pytest.raises(RequestRejected) as caught:
        request("r", (1,), priority=priority)
    assert caught.value.param == "priority"


def test_a_tenant_of_any_length_is_refused_and_none_is_shown() -> None:
    with pytest.raises(RequestRejected):
        request("r", (1,), tenant="t" * (MAX_TENANT_CHARS + 1))
    one = GenerationRequest(
        request_id="r",
        prompt_token_ids=(1,),
        sampling=SamplingParams(max_tokens=1),
        arrival_ns=0,
        tenant="canary",
    )
    assert "canary" not in repr(one)

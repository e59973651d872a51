"""Is every key offered, opened with and erased when its time comes, and no id given too soon?"""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestation.channel import (
    ClientRequest,
    KeyConfigError,
    KeyOffer,
    KeyRing,
    KeyState,
    RotationEvent,
    ServerRequest,
)
from attestation.channel.kem import KEM_X25519, KEM_XWING
from tests.attestation.channel.keys import fixed_rng

PERIOD_S = 300.0


class FakeClock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def make_ring(clock: FakeClock, **options: object) -> KeyRing:
    return KeyRing(clock_s=clock, period_s=PERIOD_S, **options)  # type: ignore[arg-type]


def published_ids(ring: KeyRing) -> list[int]:
    return [config.key_id for config in ring.published]


def test_a_key_is_pending_then_active_then_stale_then_gone() -> None:
    clock = FakeClock()
    ring = make_ring(clock)
    first, second = published_ids(ring)
    assert ring.states() == {first: KeyState.ACTIVE, second: KeyState.PENDING}

    clock.now_s += PERIOD_S
    ring.advance()
    active, third = published_ids(ring)
    assert active == second
    assert list(ring.opening()) == [second, first, third]
    assert ring.states()[first] is KeyState.STALE

    clock.now_s += PERIOD_S
    assert first not in ring.opening()
    assert ring.states()[second] is KeyState.STALE


def test_nothing_changes_before_its_time() -> None:
    clock, events = FakeClock(), list[RotationEvent]()
    ring = make_ring(clock, on_rotated=events.append)
    before = ring.states()
    clock.now_s += PERIOD_S - 0.001
    ring.advance()
    assert (ring.states(), events) == (before, [])
    assert ring.next_change_in_s == pytest.approx(0.001)
    assert ring.active_erased_in_s == pytest.approx(PERIOD_S + 0.001)


def test_rotations_are_told_with_what_they_erased() -> None:
    clock, events = FakeClock(), list[RotationEvent]()
    ring = make_ring(clock, on_rotated=events.append)
    first, second = published_ids(ring)
    clock.now_s += PERIOD_S
    ring.advance()
    clock.now_s += PERIOD_S
    ring.advance()
    third = published_ids(ring)[0]
    assert events == [
        RotationEvent(activated=(second,), erased=()),
        RotationEvent(activated=(third,), erased=(first,)),
    ]


def test_an_erased_key_opens_nothing() -> None:
    clock = FakeClock()
    ring = make_ring(clock)
    old = ring.published[0]
    body = ClientRequest(old, rng=fixed_rng("client")).seal_message(b"message")
    clock.now_s += 2 * PERIOD_S - 0.001
    assert ServerRequest(ring.opening()).open_message(body) == b"message"
    clock.now_s += 0.001
    with pytest.raises(KeyConfigError):
        ServerRequest(ring.opening()).open_message(body)


@pytest.mark.parametrize("slept_periods", [2.5, 3.5, 1e6])
def test_after_a_long_sleep_only_new_keys_are_left(slept_periods: float) -> None:
    clock, events = FakeClock(), list[RotationEvent]()
    ring = make_ring(clock, on_rotated=events.append)
    before = ring.states().keys()
    clock.now_s += slept_periods * PERIOD_S
    ring.advance()
    states = ring.states()
    assert sorted(states.values()).count(KeyState.ACTIVE) == 1
    assert sorted(states.values()).count(KeyState.PENDING) == 1
    if slept_periods > 3:
        assert not before & states.keys()
        assert events[0].erased == tuple(sorted(before))


def test_each_offer_has_a_key_in_each_generation() -> None:
    clock = FakeClock()
    ring = make_ring(clock, offers=(KeyOffer(), KeyOffer(kem_id=KEM_XWING)))
    assert [config.kem_id for config in ring.published] == [KEM_X25519, KEM_XWING] * 2
    assert len(set(published_ids(ring))) == 4


def test_ids_rest_before_they_come_back() -> None:
    clock = FakeClock()
    ring = make_ring(clock, offers=(KeyOffer(),) * 4)
    given_ids = published_ids(ring)
    for _ in range(200):
        clock.now_s += PERIOD_S
        ring.advance()
        given_ids += published_ids(ring)[4:]
    assert len(given_ids) > 3 * 256
    for index, key_id in enumerate(given_ids):
        assert key_id not in given_ids[max(0, index - 128) : index]


@given(st.lists(st.floats(min_value=0, max_value=4 * PERIOD_S), max_size=12))
def test_what_is_published_opens_for_a_whole_period_more(steps: list[float]) -> None:
    clock = FakeClock()
    ring = make_ring(clock)
    offered: list[tuple[float, int, bytes]] = []
    for step in steps:
        clock.now_s += step
        opening = ring.opening()
        for since_s, key_id, public_key in offered:
            if clock.now_s - since_s < PERIOD_S:
                assert opening[key_id].config.public_key == public_key
        states = list(ring.states().values())
        assert states.count(KeyState.ACTIVE) == 1
        assert states.count(KeyState.PENDING) == 1
        assert set(published_ids(ring)) <= opening.keys()
        offered += [(clock.now_s, c.key_id, c.public_key) for c in ring.published]


def test_no_secret_in_the_repr() -> None:
    drawn: list[bytes] = []

    def rng(num_bytes: int) -> bytes:
        drawn.append(hashlib.sha256(str(len(drawn)).encode()).digest()[:num_bytes])
        return drawn[-1]

    text = repr(make_ring(FakeClock(), rng=rng))
    assert "active" in text
    assert not any(secret.hex() in text or repr(secret)[2:-1] in text for secret in drawn)


@pytest.mark.parametrize(
    "options", [{"period_s": 0.0}, {"offers": ()}, {"offers": (KeyOffer(),) * 5}]
)
def test_impossible_rings(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="positive period"):
        KeyRing(clock_s=FakeClock(), **options)  # type: ignore[arg-type]

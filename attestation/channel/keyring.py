"""Rotating keys: which keys does a server offer, which does it still open with, which are gone?

::

    Pending --period--> Active --period--> Stale --period--> erased
    published, opens    published, opens    opens only        neither

A client that read the key list a moment before a rotation still gets through for one more period,
and a client that reads it just before finds the next key already there, attested. Forward secrecy
follows from erasure: what was sealed to a key that is gone can be opened by nobody.
An id is one byte  [RFC 9458 sec. 3.1], so ids come back; one is given again only after its key was
erased and many others were given since, so that a late client meets an unknown id, not a wrong key.
"""

import os
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from attestation.channel.encapsulation import ServerKey, ServerKeys
from attestation.channel.kem import KEM_X25519, PrivateKey, Rng
from attestation.channel.keyconfig import DEFAULT_SYMMETRIC, KeyConfig, SymmetricSuite

ROTATION_PERIOD_S: Final = 300.0
MAX_OFFERS: Final = 4  # per generation; three generations and the ids that rest fit in one byte
_NUM_IDS: Final = 256
_NUM_RESTING: Final = 128  # ids that were given last and are not given again yet


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyOffer:
    """One key of each generation: its KEM, and what it may be used with."""

    kem_id: int = KEM_X25519
    symmetric: tuple[SymmetricSuite, ...] = DEFAULT_SYMMETRIC


class KeyState(StrEnum):
    """Where a key is on its way; an erased key is in no ring."""

    PENDING = "pending"
    ACTIVE = "active"
    STALE = "stale"


@dataclass(frozen=True, slots=True, kw_only=True)
class RotationEvent:
    """What one step of a ring did: ids whose keys became active, and ids that are gone."""

    activated: tuple[int, ...]
    erased: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Generation:
    """The keys that share a life, one per offer in the order of preference."""

    active_from_s: float
    keys: tuple[ServerKey, ...] = field(repr=False)


class KeyRing:
    """The keys of one process; `clock_s` is monotonic, so that no set clock ends or extends a key.

    Only the owner's thread may call ``advance`` and ``opening``; what else there is may be read
    from any other, and is as of the last ``advance``.

    Raises: ValueError for a period that is not positive, or a number of offers outside 1..4.
    """

    def __init__(
        self,
        *,
        clock_s: Callable[[], float],
        offers: tuple[KeyOffer, ...] = (KeyOffer(),),
        period_s: float = ROTATION_PERIOD_S,
        rng: Rng = os.urandom,
        on_rotated: Callable[[RotationEvent], None] = lambda _event: None,
    ) -> None:
        """`on_rotated` is called by ``advance`` after each change."""
        if period_s <= 0 or not 1 <= len(offers) <= MAX_OFFERS:
            raise ValueError("a key ring has a positive period and one to four offers")
        self._clock_s = clock_s
        self._offers = offers
        self._period_s = period_s
        self._rng = rng
        self._on_rotated = on_rotated
        self._resting: deque[int] = deque(maxlen=_NUM_RESTING)
        self._generations: tuple[_Generation, ...] = ()
        self._by_state: Mapping[KeyState, tuple[ServerKey, ...]] = {}
        self._fill(clock_s())

    @property
    def published(self) -> tuple[KeyConfig, ...]:
        """What the key list and the attested keyset name: the Active keys, then the Pending."""
        by_state = self._by_state  # read once: another thread may be at work
        offered = by_state[KeyState.ACTIVE] + by_state[KeyState.PENDING]
        return tuple(key.config for key in offered)

    def opening(self) -> ServerKeys:
        """The keys that open now, by id: Active first, then Stale, then Pending."""
        self.advance()
        order = (KeyState.ACTIVE, KeyState.STALE, KeyState.PENDING)
        return {key.config.key_id: key for state in order for key in self._by_state[state]}

    def states(self) -> dict[int, KeyState]:
        """Every live key's state, by id."""
        by_state = self._by_state
        return {key.config.key_id: state for state in KeyState for key in by_state[state]}

    @property
    def next_change_in_s(self) -> float:
        """Seconds until ``advance`` has something to do; zero when it is due."""
        return max(0.0, self._generations[-1].active_from_s - self._clock_s())

    @property
    def active_erased_in_s(self) -> float:
        """Seconds for which what is sealed to the key that is Active now will be opened."""
        return self.next_change_in_s + self._period_s

    def advance(self) -> None:
        """Bring every key to where it is now; erased ones leave the ring and its memory."""
        now_s = self._clock_s()
        if now_s < self._generations[-1].active_from_s:
            return
        before = self.states().keys()
        self._fill(now_s)
        after = self.states()
        active = tuple(key_id for key_id, state in after.items() if state is KeyState.ACTIVE)
        self._on_rotated(
            RotationEvent(activated=active, erased=tuple(sorted(before - after.keys())))
        )

    def __repr__(self) -> str:
        return f"KeyRing(period_s={self._period_s}, states={self.states()})"

    def _fill(self, now_s: float) -> None:
        """Drops what has lived its life, and adds up to the generation that comes next."""
        life_s = 2 * self._period_s
        self._generations = tuple(
            each for each in self._generations if now_s < each.active_from_s + life_s
        )
        while not self._generations or self._generations[-1].active_from_s <= now_s:
            newest = self._generations[-1].active_from_s if self._generations else None
            self._add_generation(now_s if newest is None else newest + self._period_s)
        self._by_state = {state: self._in_state(state, now_s) for state in KeyState}

    def _add_generation(self, active_from_s: float) -> None:
        keys: list[ServerKey] = []
        for offer in self._offers:
            private_key = PrivateKey.generate(offer.kem_id, rng=self._rng)
            keys.append(ServerKey.from_private_key(self._new_id(), private_key, offer.symmetric))
        added = _Generation(active_from_s=active_from_s, keys=tuple(keys))
        self._generations = (*self._generations, added)

    def _new_id(self) -> int:
        """One that no live key has and that was not given lately; hardly another process's."""
        live = {key.config.key_id for each in self._generations for key in each.keys}
        free = [n for n in range(_NUM_IDS) if n not in live and n not in self._resting]
        key_id = free[int.from_bytes(self._rng(4), "big") % len(free)]
        self._resting.append(key_id)
        return key_id

    def _in_state(self, state: KeyState, now_s: float) -> tuple[ServerKey, ...]:
        return tuple(
            key
            for each in self._generations
            if self._state_of(each, now_s) is state
            for key in each.keys
        )

    def _state_of(self, generation: _Generation, now_s: float) -> KeyState:
        if now_s < generation.active_from_s:
            return KeyState.PENDING
        is_active = now_s < generation.active_from_s + self._period_s
        return KeyState.ACTIVE if is_active else KeyState.STALE

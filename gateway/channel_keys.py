"""Which keys does this process open sealed requests with, and which requests has it seen?

One ring and one memory of replays belong together: what a process remembers of a request it may
forget when the request's key is erased. A key is erased when its time is up, not when the next
request comes: `keep` sees to that.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from attestation.channel import KeyConfig, KeyOffer, KeyRing, RotationEvent, ServerKeys
from attestation.channel.keyring import ROTATION_PERIOD_S
from attestation.keyset import OhttpKey
from gateway.replay import ReplayGuard, RequestName, parse_date

_log = logging.getLogger(__name__)

_LATE_S: Final = 0.001  # asyncio's timers may be this early


class ChannelKeys:
    """On the event loop only, but for `published`, `attested` and `changes_at`."""

    def __init__(
        self,
        *,
        clock_s: Callable[[], float],
        utc_now: Callable[[], datetime],
        offers: tuple[KeyOffer, ...] = (KeyOffer(),),
        period_s: float = ROTATION_PERIOD_S,
        on_rotated: Callable[[RotationEvent], None] = lambda _event: None,
    ) -> None:
        """`on_rotated` is told of every rotation, once the erased keys' requests are forgotten."""
        self._ring = KeyRing(
            clock_s=clock_s, offers=offers, period_s=period_s, on_rotated=self._rotated
        )
        self._on_rotated = on_rotated
        self._replay = ReplayGuard()
        self._utc_now = utc_now
        self._changes_at = self._next_change_at()

    @property
    def changes_at(self) -> datetime:
        """When Pending becomes Active next, as it was foreseen at the last rotation."""
        return self._changes_at

    @property
    def ring(self) -> KeyRing:
        return self._ring

    @property
    def published(self) -> tuple[KeyConfig, ...]:
        """The key list: Active, then Pending."""
        return self._ring.published

    def attested(self) -> tuple[OhttpKey, ...]:
        """The same keys as a keyset names them."""
        return tuple(
            OhttpKey(key_id=config.key_id, kem=config.kem_id, config_sha256=config.sha256)
            for config in self._ring.published
        )

    def opening(self) -> ServerKeys:
        """The keys that open at this moment, the likeliest first."""
        return self._ring.opening()

    def require_new(self, key_id: int, enc: bytes, *, date: str | None) -> None:
        """`date` is the sealed request's own, an HTTP date.

        Raises: GatewayError `date_outside_window`, `replay_detected`, `overloaded`.
        """
        self._replay.require_new(
            RequestName(key_id, enc),
            date=None if date is None else parse_date(date),
            now=self._utc_now(),
        )

    def forget_request(self, key_id: int, enc: bytes) -> None:
        """It ran nothing of anybody's, so it need not be told from its replays."""
        self._replay.forget(RequestName(key_id, enc))

    async def keep(self) -> None:
        """Rotates until cancelled."""
        while True:
            self._ring.advance()
            await asyncio.sleep(self._ring.next_change_in_s + _LATE_S)

    def _rotated(self, event: RotationEvent) -> None:
        for key_id in event.erased:
            self._replay.forget_key(key_id)
        _log.debug("channel keys rotated", extra={"erased": len(event.erased)})
        self._changes_at = self._next_change_at()
        self._on_rotated(event)

    def _next_change_at(self) -> datetime:
        return self._utc_now() + timedelta(seconds=self._ring.next_change_in_s)

"""When is the gateway verified anew, and what is the person told about it?

Before the verdict ends, so that no request waits; after a refusal or without an answer, again and
again, since a machine may come back.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from attestation.transport import EvidenceRefused, GatewayUnavailable, SessionKeeper
from gateway.faults import describe_fault

REFUSED_RETRY: Final = timedelta(seconds=10)
FIRST_RETRY: Final = timedelta(seconds=1)
LAST_RETRY: Final = timedelta(seconds=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """``tell`` says one line; ``wake``, set on the event loop, ends a pause."""

    keeper: SessionKeeper
    utc_now: Callable[[], datetime]
    tell: Callable[[str], None]
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Until cancelled."""
        trouble, num_silent = "", 0
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause(trouble, num_silent).total_seconds()):
                    await self.wake.wait()
            self.wake.clear()
            session = self.keeper.session
            if session is not None and self.utc_now() < session.refresh_due and not trouble:
                continue  # a request has renewed it meanwhile
            try:
                renewed = await self.keeper.arenew(than=session)
            except EvidenceRefused as err:
                if err.code != trouble:
                    self.tell(f"REFUSED: {err}; requests are refused until it passes again")
                trouble, num_silent = err.code, 0
            except Exception as err:  # nobody answers, or a fault: this task must not end unseen
                if not num_silent:
                    said = err if isinstance(err, GatewayUnavailable) else describe_fault(err)
                    self.tell(f"cannot verify now: {said}; the last verdict holds to its end")
                trouble, num_silent = "unavailable", num_silent + 1
            else:
                if trouble:
                    self.tell(f"verified again, until {renewed.not_after:%H:%M:%S} UTC")
                trouble, num_silent = "", 0

    def _pause(self, trouble: str, num_silent: int) -> timedelta:
        if num_silent:
            return min(FIRST_RETRY * 2.0 ** min(num_silent - 1, 10), LAST_RETRY)
        session = self.keeper.session
        if trouble or session is None:
            return REFUSED_RETRY if trouble else FIRST_RETRY
        return max(session.refresh_due - self.utc_now(), timedelta())

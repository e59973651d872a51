"""How do many requests share one verdict, and one verification when it is time for the next?

A verification runs in a thread of its own, so threads and event loops wait for the same one, and a
caller that gives up takes nothing from the others.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from datetime import datetime, timedelta
from typing import Final

from attestation.transport.errors import EvidenceRefused
from attestation.transport.session import Session

QUARANTINE: Final = timedelta(seconds=5)  # a gateway's flood of refusals is not ours to make


class SessionKeeper:
    """Holds the session that may be used now; safe to share between threads and event loops."""

    def __init__(
        self,
        verify: Callable[[], Session],
        *,
        utc_now: Callable[[], datetime],
        on_session: Callable[[Session], None] = lambda _session: None,
        on_refused: Callable[[EvidenceRefused], None] = lambda _refused: None,
    ) -> None:
        """Both are told what came of each verification, in the thread that it ran in."""
        self._verify = verify
        self._utc_now = utc_now
        self._on_session = on_session
        self._on_refused = on_refused
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._flight: Future[Session] | None = None
        self._refused: tuple[EvidenceRefused, datetime] | None = None

    @property
    def session(self) -> Session | None:
        """The one that may be sealed to now; None before the first and after the last."""
        session = self._session
        return session if session is not None and session.is_current(self._utc_now()) else None

    def require(self) -> Session:
        """A session that may be used now; waits for a verification when there is none.

        Raises: EvidenceRefused; GatewayUnavailable.
        """
        return self.session or self.renew(than=None).result()

    async def arequire(self) -> Session:
        """``require`` for an event loop. Raises: EvidenceRefused; GatewayUnavailable."""
        return self.session or await self.arenew(than=None)

    def renew(self, *, than: Session | None) -> Future[Session]:
        """A session newer than ``than``, one verification for all who ask meanwhile.

        ``than`` is kept and used until the answer is there. When there is none, because nobody
        answers, it stays to its end; a negative verdict ends it at once, and stands for QUARANTINE
        without another question.
        """
        done: Future[Session] = Future()
        with self._lock:
            current = self.session
            if current is not None and current is not than:
                done.set_result(current)
                return done
            if self._refused is not None and self._utc_now() < self._refused[1]:
                done.set_exception(self._refused[0])
                return done
            if self._flight is None:
                self._flight = Future()
                threading.Thread(
                    target=self._run, args=(self._flight,), name="verify", daemon=True
                ).start()
            return self._flight

    async def arenew(self, *, than: Session | None) -> Session:
        """``renew`` for an event loop. Raises: EvidenceRefused; GatewayUnavailable."""
        return await asyncio.shield(asyncio.wrap_future(self.renew(than=than)))

    def _run(self, flight: "Future[Session]") -> None:
        flight.set_running_or_notify_cancel()  # from here on nobody can cancel it
        try:
            session = self._verify()
        except BaseException as err:  # the thread's edge: whoever waits is told
            with self._lock:
                self._flight = None
                if isinstance(err, EvidenceRefused):
                    self._session, self._refused = None, (err, self._utc_now() + QUARANTINE)
            if isinstance(err, EvidenceRefused):
                self._on_refused(err)
            flight.set_exception(err)
            return
        with self._lock:
            self._session, self._refused, self._flight = session, None, None
        self._on_session(session)
        flight.set_result(session)

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

from attestation.transport.errors import EvidenceRefused, GatewayUnavailable
from attestation.transport.session import Session

QUARANTINE: Final = timedelta(seconds=5)  # a gateway's flood of refusals is not ours to make


class SessionKeeper:
    """Holds the session that may be used now; safe to share between threads and event loops."""

    def __init__(
        self,
        verify: Callable[[], Session],
        *,
        utc_now: Callable[[], datetime],
        on_refused: Callable[[EvidenceRefused], None] = lambda _refused: None,
    ) -> None:
        """``on_refused`` is told of each refusal, in the thread of that verification."""
        self._verify = verify
        self._utc_now = utc_now
        self._on_refused = on_refused
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._waiting: list[Future[Session]] = []  # for the verification under way
        self._refused: tuple[EvidenceRefused, datetime] | None = None  # and when

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
        done.set_running_or_notify_cancel()  # from here on nobody can cancel it
        with self._lock:
            current = self.session
            if current is not None and current is not than:
                done.set_result(current)
            elif self._refused is not None and self._is_quarantined(self._refused[1]):
                done.set_exception(_anew(self._refused[0]))
            else:
                self._waiting.append(done)
                if len(self._waiting) == 1:
                    threading.Thread(target=self._run, name="verify", daemon=True).start()
        return done

    async def arenew(self, *, than: Session | None) -> Session:
        """``renew`` for an event loop. Raises: EvidenceRefused; GatewayUnavailable."""
        return await asyncio.shield(asyncio.wrap_future(self.renew(than=than)))

    def _is_quarantined(self, since: datetime) -> bool:
        """A clock that was put back ends it, as it ends a session."""
        return since <= self._utc_now() < since + QUARANTINE

    def _run(self) -> None:
        try:
            session = self._verify()
        except BaseException as err:  # the thread's edge: whoever waits is told
            refused = err if isinstance(err, EvidenceRefused) else None
            with self._lock:
                waiting, self._waiting = self._waiting, []
                if refused is not None:
                    self._session, self._refused = None, (refused, self._utc_now())
            for done in waiting:
                done.set_exception(_anew(err))
            if refused is not None:
                self._on_refused(refused)
            return
        with self._lock:
            waiting, self._waiting = self._waiting, []
            self._session, self._refused = session, None
        for done in waiting:
            done.set_result(session)


def _anew(err: BaseException) -> BaseException:
    """For one caller alone: an exception keeps the frames that it is raised through."""
    if isinstance(err, EvidenceRefused):
        anew: BaseException = EvidenceRefused(err.code, str(err), err.result)
    elif isinstance(err, GatewayUnavailable):
        anew = GatewayUnavailable(err.code, str(err), reason=err.reason)
    else:
        return err
    anew.__cause__ = err
    return anew

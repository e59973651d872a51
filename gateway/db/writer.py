"""How does the event loop write to gateway.db without waiting?  One thread, many writes a commit.

Whoever submits gets a future. A database that cannot be written (a full disk, a lock that stays)
loses nothing that has to be kept: those writes are held and tried again, in order, while writes
that may fail are told so at once. ``is_failing`` says so to whoever wants to refuse work early.
"""

import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DataError, IntegrityError, ProgrammingError, SQLAlchemyError

from gateway.db.engine import writing
from gateway.faults import describe_fault

_log = logging.getLogger(__name__)

Write = Callable[[Connection], None]

MAX_QUEUED: Final = 16_384
MAX_BATCH: Final = 512
RETRY_S: Final = 0.5
_OWN_FAULTS: Final = (IntegrityError, DataError, ProgrammingError)  # trying again cannot help


class WriterFull(Exception):
    """More writes wait than the writer may hold."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Job:
    write: Write
    is_kept: bool
    done: "Future[None]" = field(default_factory=Future)


class DatabaseWriter:
    """The one thread of this process that writes to gateway.db."""

    def __init__(
        self,
        engine: Engine,
        *,
        monotonic_ns: Callable[[], int],
        on_committed: Callable[[], float | None] = lambda: None,
        retry_s: float = RETRY_S,
        max_queued: int = MAX_QUEUED,
    ) -> None:
        """`on_committed` runs in the thread after each commit, and says in how many seconds it
        wants to run again if there is none until then.
        """
        self._engine = writing(engine)
        self._monotonic_ns = monotonic_ns
        self.on_committed = on_committed
        self._retry_s = retry_s
        self._max_queued = max_queued
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._held: list[_Job] = []  # of the thread: kept writes that failed
        self._again_s: float | None = None  # of the thread: when on_committed runs without a write
        self._failed_ns: int | None = None
        self._thread = threading.Thread(target=self._run, name="gateway-db", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Blocks until everything submitted was tried."""
        if self._thread.is_alive():
            self._jobs.put(None)
            self._thread.join()

    @property
    def is_failing(self) -> bool:
        """The last try failed, and it is not yet time for another."""
        failed_ns = self._failed_ns
        return (
            failed_ns is not None and self._monotonic_ns() - failed_ns < self._retry_s * 1e9
        ) or self._num_waiting >= self._max_queued

    @property
    def has_failed(self) -> bool:
        """The last try failed, however long ago; without a write nobody knows whether it still
        would.
        """
        return self._failed_ns is not None or self.is_failing

    def submit(self, write: Write, *, is_kept: bool = True) -> "Future[None]":
        """`write` runs in a transaction, after all that were submitted before.

        One that is not kept fails when the database does. Raises: WriterFull.
        """
        if self._num_waiting >= self._max_queued:
            raise WriterFull(f"{self._max_queued} writes wait")
        job = _Job(write=write, is_kept=is_kept)
        self._jobs.put(job)
        return job.done

    @property
    def _num_waiting(self) -> int:
        return self._jobs.qsize() + len(self._held)

    # -- the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        is_stopping = False
        while not is_stopping:
            batch, is_stopping = self._next_batch()
            jobs = [*self._held, *batch]
            if jobs:
                self._commit(jobs)
            elif not is_stopping:
                self._again_s = self.on_committed()
        if self._held:
            _log.error("writes to the database are lost", extra={"count": len(self._held)})
            for job in self._held:
                job.done.set_exception(WriterFull("the process ended"))

    def _next_batch(self) -> tuple[list[_Job], bool]:
        """What waits, at least one job or the time to do without; and whether it is the last."""
        batch: list[_Job] = []
        try:
            job = self._jobs.get(timeout=self._retry_s if self._held else self._again_s)
            while True:
                if job is None:
                    return batch, True
                batch.append(job)
                if len(batch) == MAX_BATCH:
                    return batch, False
                job = self._jobs.get_nowait()
        except queue.Empty:
            return batch, False

    def _commit(self, jobs: list[_Job]) -> None:
        try:
            refused = self._transact(jobs)
        except (SQLAlchemyError, OSError) as err:
            self._hold(jobs, err)
            return
        self._held = []
        if self._failed_ns is not None:
            _log.warning("the database can be written again")
            self._failed_ns = None
        self._again_s = self.on_committed()
        for job in jobs:
            if job not in refused:
                job.done.set_result(None)

    def _transact(self, jobs: list[_Job]) -> list[_Job]:
        """Those that were refused for what they are, and told so; all others are committed.

        Raises: SQLAlchemyError, OSError: nothing is committed.
        """
        try:
            with self._engine.begin() as connection:
                for job in jobs:
                    job.write(connection)
        except Exception as err:  # the thread's edge: a defect in one write ends no other
            if _is_of_the_database(err):
                raise
            return self._transact_one_by_one(jobs)
        return []

    def _transact_one_by_one(self, jobs: list[_Job]) -> list[_Job]:
        """The same with a savepoint for each, which costs more than most writes."""
        refused = list[_Job]()
        with self._engine.begin() as connection:
            for job in jobs:
                try:
                    with connection.begin_nested():
                        job.write(connection)
                except Exception as err:  # as above
                    if _is_of_the_database(err):
                        raise
                    _log.error("a write to the database is refused: %s", describe_fault(err))
                    refused.append(job)
                    job.done.set_exception(err)
        return refused

    def _hold(self, jobs: list[_Job], err: Exception) -> None:
        if self._failed_ns is None:
            _log.error("the database cannot be written: %s", describe_fault(err))
        self._failed_ns = self._monotonic_ns()
        self._held = [job for job in jobs if job.is_kept and not job.done.done()]
        for job in jobs:
            if not job.is_kept and not job.done.done():
                job.done.set_exception(err)


def _is_of_the_database(err: Exception) -> bool:
    """Trying the same write again later can help."""
    return isinstance(err, SQLAlchemyError | OSError) and not isinstance(err, _OWN_FAULTS)

"""How are the processes of `starshade up` started, restarted and stopped, leaving no orphan?

Single-threaded: the caller calls `tick` every few dozen milliseconds. Each child has a process
group of its own, so that Ctrl-C reaches the supervisor alone and the order of stopping is ours.
"""

import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from gateway.files import PRIVATE_FILE, make_private_dir

POLL_S = 0.05
WATCH_FD = "{watch-fd}"  # stands in a role's command line for the descriptor's number
KEEP_LOG_BYTES = 8 * 1024 * 1024  # a longer log is moved aside when its process starts
TAIL_BYTES = 8 * 1024
TAIL_LINES = 12
# Exit status of a child that will say the same thing every time: a usage or configuration error.
_HOPELESS_EXIT = 2


class Clock(Protocol):
    def now_s(self) -> float: ...
    def sleep_s(self, duration_s: float) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A kind of child: its command line, how long it may take to stop, whether all ends with it."""

    name: str
    argv: tuple[str, ...]
    stop_limit_s: float
    is_essential: bool = True
    answers: Callable[[], bool] | None = None  # asks the child whether it lives; None: never asked


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """Exponential back-off, reset by a life that was not quick."""

    first_delay_s: float = 0.25
    max_delay_s: float = 10.0
    quick_life_s: float = 10.0
    max_quick_deaths: int = 5
    inessential_delay_s: float = (
        60.0  # after as many deaths of a child that the rest can do without
    )

    def delay_s(self, quick_deaths: int) -> float | None:
        """How long to wait after this many quick deaths in a row; None: give up."""
        if quick_deaths >= self.max_quick_deaths:
            return None
        delay_s: float = self.first_delay_s * 2.0 ** max(quick_deaths - 1, 0)
        return min(delay_s, self.max_delay_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class PatiencePolicy:
    """How long a child may be silent before it is taken for stuck and killed.

    Misses are counted, not time: a supervisor that was itself stopped must not blame its children.
    """

    interval_s: float = 5.0
    max_misses: int = 6
    max_start_misses: int = 60  # before its first answer: it may be importing on a busy machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """A child ended although nobody asked it to, or was ended because it had not answered."""

    role: str
    returncode: int
    lived_s: float
    log: Path
    tail: str
    restart_in_s: float | None  # None: it is not started again
    was_silent: bool = False

    @property
    def how(self) -> str:
        if self.was_silent:
            return "did not answer any more and was killed"
        if self.returncode < 0:
            return f"was ended by {signal.Signals(-self.returncode).name}"
        return f"ended with status {self.returncode}"


class GaveUp(Exception):
    """A child cannot be kept alive."""

    code = "process_failed"

    def __init__(self, death: Death) -> None:
        self.death = death
        super().__init__(f"the {death.role} {death.how} and is not started again")


@dataclass(slots=True, kw_only=True)
class _Child:
    role: Role
    log: Path
    process: subprocess.Popen[bytes] | None = None
    started_s: float = 0.0
    quick_deaths: int = 0
    restart_at_s: float = field(default=0.0)
    ask_at_s: float = 0.0
    num_misses: int = 0  # in a row
    has_answered: bool = False  # since it was started
    was_silent: bool = False


class Supervisor:
    """Owns the children; use as a context manager, so that none outlives it."""

    def __init__(
        self,
        roles: Sequence[Role],
        *,
        logs_dir: Path,
        environ: Mapping[str, str],
        clock: Clock,
        policy: RestartPolicy,
        on_death: Callable[[Death], None],
        patience: PatiencePolicy = PatiencePolicy(),
    ) -> None:
        make_private_dir(logs_dir)
        self._children = [_Child(role=role, log=logs_dir / f"{role.name}.log") for role in roles]
        self._environ = dict(environ)
        self._clock = clock
        self._policy = policy
        self._patience = patience
        self._on_death = on_death
        # Children read one end; the other is ours alone and closes with us (see watchdog.py).
        self._read_fd, self._write_fd = os.pipe()

    def __enter__(self) -> "Supervisor":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        os.close(self._write_fd)
        os.close(self._read_fd)

    def start(self) -> None:
        """Starts every child. Raises: OSError when one cannot be started at all."""
        for child in self._children:
            self._spawn(child)

    def tick(self) -> None:
        """Notices the dead and the stuck, restarts those whose time has come.

        Blocks for as long as one `answers` takes. Raises: GaveUp; OSError from starting a child.
        """
        for child in self._children:
            if child.process is not None and child.process.poll() is None:
                self._ask(child, child.process)
            if child.process is not None and child.process.poll() is not None:
                self._bury(child, child.process.returncode)
            if child.process is None and self._clock.now_s() >= child.restart_at_s:
                self._spawn(child)

    def stop(self, order: Sequence[str], *, hurry: Callable[[], bool]) -> list[str]:
        """Asks the children to stop, one after the other in `order`, then kills what is left.

        `hurry` is asked all the time; True kills everything at once. Returns the roles that had to
        be killed.
        """
        killed: list[str] = []
        for name in order:
            child = next(c for c in self._children if c.role.name == name)
            if child.process is not None and not self._stop_one(child.process, child.role, hurry):
                killed.append(name)
        self.kill()
        return killed

    def kill(self) -> None:
        """Ends every child and whatever it started, at once."""
        for child in self._children:
            if child.process is not None:
                if child.process.poll() is None:
                    _signal_group(child.process, signal.SIGKILL)
                    child.process.wait()
                child.process = None
            child.restart_at_s = float("inf")

    def _stop_one(
        self, process: subprocess.Popen[bytes], role: Role, hurry: Callable[[], bool]
    ) -> bool:
        if process.poll() is None:
            process.terminate()
        deadline_s = self._clock.now_s() + role.stop_limit_s
        while process.poll() is None:
            if hurry() or self._clock.now_s() >= deadline_s:
                return False
            self._clock.sleep_s(POLL_S)
        return True

    def _ask(self, child: _Child, process: subprocess.Popen[bytes]) -> None:
        """Kills a child that has missed too many questions in a row; `tick` then buries it."""
        if child.role.answers is None or self._clock.now_s() < child.ask_at_s:
            return
        is_alive = child.role.answers()
        child.ask_at_s = self._clock.now_s() + self._patience.interval_s
        if is_alive:
            child.num_misses, child.has_answered = 0, True
            return
        child.num_misses += 1
        patience = self._patience
        limit = patience.max_misses if child.has_answered else patience.max_start_misses
        if child.num_misses >= limit:
            child.was_silent = True
            _signal_group(process, signal.SIGKILL)  # also ends what is stopped
            process.wait()

    def _spawn(self, child: _Child) -> None:
        if child.log.exists() and child.log.stat().st_size > KEEP_LOG_BYTES:
            child.log.replace(child.log.with_suffix(".log.1"))
        log_fd = os.open(child.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE_FILE)
        argv = [str(self._read_fd) if arg == WATCH_FD else arg for arg in child.role.argv]
        try:
            child.process = subprocess.Popen(  # noqa: S603 - our own commands
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log_fd,
                stderr=log_fd,
                env=self._environ,
                pass_fds=(self._read_fd,),
                process_group=0,
            )
        finally:
            os.close(log_fd)
        child.started_s = self._clock.now_s()
        child.ask_at_s = child.started_s + self._patience.interval_s
        child.num_misses, child.has_answered, child.was_silent = 0, False, False

    def _bury(self, child: _Child, returncode: int) -> None:
        lived_s = self._clock.now_s() - child.started_s
        child.process = None
        quick = lived_s < self._policy.quick_life_s
        child.quick_deaths = child.quick_deaths + 1 if quick else 1
        delay_s = None
        if returncode != _HOPELESS_EXIT:
            delay_s = self._policy.delay_s(child.quick_deaths)
        if delay_s is None and not child.role.is_essential:
            delay_s = self._policy.inessential_delay_s
        death = Death(
            role=child.role.name,
            returncode=returncode,
            lived_s=lived_s,
            log=child.log,
            tail=log_tail(child.log),
            restart_in_s=delay_s,
            was_silent=child.was_silent,
        )
        if delay_s is None:
            raise GaveUp(death)
        child.restart_at_s = self._clock.now_s() + delay_s
        self._on_death(death)


def log_tail(log: Path) -> str:
    """The last lines of a log, bounded in lines and bytes."""
    try:
        with log.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - TAIL_BYTES))
            text = stream.read(TAIL_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-TAIL_LINES:])


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)

"""Are children restarted with patience, stopped in order, and never left behind?"""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.supervisor import (
    KEEP_LOG_BYTES,
    TAIL_LINES,
    WATCH_FD,
    Death,
    GaveUp,
    PatiencePolicy,
    RestartPolicy,
    Role,
    Supervisor,
    log_tail,
)
from tests.support.patience import PATIENCE_S

FAST = RestartPolicy(
    first_delay_s=0.01,
    max_delay_s=0.05,
    quick_life_s=30.0,
    max_quick_deaths=4,
    inessential_delay_s=0.06,
)
SLEEPER = "import time\ntime.sleep(600)"
STUBBORN = """
    import signal, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("ignoring", flush=True)
    time.sleep(600)
"""


class RealClock:
    def now_s(self) -> float:
        return time.monotonic()

    def sleep_s(self, duration_s: float) -> None:
        time.sleep(duration_s)


def role(name: str, code: str, *, stop_limit_s: float = 10.0, watched: bool = False) -> Role:
    """A child that runs `code`; a watched one ends with the supervisor."""
    preamble = "import sys\n"
    if watched:
        preamble += "from gateway.watchdog import end_with_supervisor\n"
        preamble += "end_with_supervisor(int(sys.argv[1]))\n"
    argv = (sys.executable, "-c", preamble + textwrap.dedent(code), WATCH_FD)
    return Role(name=name, argv=argv, stop_limit_s=stop_limit_s)


@contextmanager
def supervising(
    folder: Path, *roles: Role, policy: RestartPolicy = FAST
) -> Iterator[tuple[Supervisor, list[Death]]]:
    deaths: list[Death] = []
    with Supervisor(
        roles,
        logs_dir=folder / "logs",
        environ=dict(os.environ),  # noqa: TID251 - children of a test
        clock=RealClock(),
        policy=policy,
        on_death=deaths.append,
    ) as supervisor:
        supervisor.start()
        yield supervisor, deaths


def wait_for(condition: Callable[[], bool], *, tick: Callable[[], None] = lambda: None) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        tick()
        time.sleep(0.01)


def pids_of(supervisor: Supervisor) -> dict[str, int]:
    """Process id of each running child by role."""
    return {c.role.name: c.process.pid for c in supervisor._children if c.process is not None}


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_a_killed_child_comes_back(tmp_path: Path) -> None:
    with supervising(tmp_path, role("worker", SLEEPER)) as (supervisor, deaths):
        first = pids_of(supervisor)["worker"]
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: pids_of(supervisor).get("worker", first) != first, tick=supervisor.tick)
    assert [death.returncode for death in deaths] == [-signal.SIGKILL]
    assert deaths[0].how == "was ended by SIGKILL"


def test_quick_deaths_end_in_giving_up_with_the_last_lines(tmp_path: Path) -> None:
    failing = role("worker", "print('cannot load', flush=True)\nsys.exit(3)")
    with supervising(tmp_path, failing) as (supervisor, deaths), pytest.raises(GaveUp) as caught:
        wait_for(lambda: False, tick=supervisor.tick)
    assert len(deaths) == FAST.max_quick_deaths - 1
    delays = [death.restart_in_s for death in deaths]
    assert delays == [0.01, 0.02, 0.04]
    assert "cannot load" in caught.value.death.tail
    assert caught.value.death.how == "ended with status 3"


def test_what_the_others_can_do_without_never_ends_them(tmp_path: Path) -> None:
    failing = replace(role("observatory", "sys.exit(3)"), is_essential=False)
    with supervising(tmp_path, role("gateway", SLEEPER), failing) as (supervisor, deaths):
        gateway = pids_of(supervisor)["gateway"]
        wait_for(lambda: len(deaths) > FAST.max_quick_deaths, tick=supervisor.tick)
        assert pids_of(supervisor)["gateway"] == gateway
    assert [death.restart_in_s for death in deaths][:5] == [0.01, 0.02, 0.04, 0.06, 0.06]


class HandClock:
    """Time by hand: it moves when the test says so."""

    time_s = 0.0

    def now_s(self) -> float:
        return self.time_s

    def sleep_s(self, duration_s: float) -> None:
        self.time_s += duration_s


@contextmanager
def asked(folder: Path, answers: Callable[[], bool]) -> Iterator[tuple[Supervisor, HandClock]]:
    """A child that is asked every 5 s, may miss 3 times, and 6 times before its first answer."""
    clock = HandClock()
    with Supervisor(
        [replace(role("worker", SLEEPER), answers=answers)],
        logs_dir=folder / "logs",
        environ=dict(os.environ),  # noqa: TID251 - children of a test
        clock=clock,
        policy=RestartPolicy(quick_life_s=0, first_delay_s=1),
        patience=PatiencePolicy(interval_s=5, max_misses=3, max_start_misses=6),
        on_death=lambda death: told.append(death),
    ) as supervisor:
        told: list[Death] = []
        supervisor.start()
        yield supervisor, clock
        assert all(death.how.startswith("did not answer") for death in told)


def asking(supervisor: Supervisor, clock: HandClock, times: int) -> int | None:
    """Lets so many questions pass; the child's process id after that."""
    for _ in range(times):
        clock.sleep_s(5)
        supervisor.tick()
    return pids_of(supervisor).get("worker")


def test_a_stopped_child_is_killed_after_so_many_questions_and_comes_back(tmp_path: Path) -> None:
    answers = [True]
    with asked(tmp_path, lambda: answers[0]) as (supervisor, clock):
        pid = pids_of(supervisor)["worker"]
        assert asking(supervisor, clock, 9) == pid
        os.kill(pid, signal.SIGSTOP)
        answers[0] = False
        assert asking(supervisor, clock, 2) == pid
        assert asking(supervisor, clock, 1) is None
        assert not is_running(pid)
        answers[0] = True
        assert asking(supervisor, clock, 1) not in {None, pid}


def test_answers_in_between_forgive(tmp_path: Path) -> None:
    answers = iter([True, False, False] * 9)
    with asked(tmp_path, lambda: next(answers)) as (supervisor, clock):
        pid = pids_of(supervisor)["worker"]
        assert asking(supervisor, clock, 27) == pid


def test_a_child_that_never_answered_has_longer(tmp_path: Path) -> None:
    with asked(tmp_path, lambda: False) as (supervisor, clock):
        pid = pids_of(supervisor)["worker"]
        assert asking(supervisor, clock, 5) == pid
        assert asking(supervisor, clock, 1) is None


def test_a_supervisor_that_slept_asks_before_it_blames(tmp_path: Path) -> None:
    num_asked = 0

    def answers() -> bool:
        nonlocal num_asked
        num_asked += 1
        return num_asked == 1

    with asked(tmp_path, answers) as (supervisor, clock):
        pid = pids_of(supervisor)["worker"]
        assert asking(supervisor, clock, 1) == pid
        clock.sleep_s(3600)
        supervisor.tick()
        supervisor.tick()  # not yet due: one question per interval
        assert (num_asked, pids_of(supervisor)["worker"]) == (2, pid)


def test_a_usage_error_is_not_tried_again(tmp_path: Path) -> None:
    with supervising(tmp_path, role("worker", "sys.exit(2)")) as (supervisor, deaths):
        with pytest.raises(GaveUp):
            wait_for(lambda: False, tick=supervisor.tick)
        assert deaths == []


def test_children_stop_in_the_given_order(tmp_path: Path) -> None:
    order = tmp_path / "order"
    code = """
        import signal, time
        def stop(*_):
            with open({order!r}, "a") as out:
                out.write({name!r} + " ")
            sys.exit(0)
        signal.signal(signal.SIGTERM, stop)
        print("ready", flush=True)
        time.sleep(600)
    """
    names = ("a", "b", "c")
    roles = [role(name, code.format(order=str(order), name=name)) for name in names]
    with supervising(tmp_path, *roles) as (supervisor, _):
        logs = [tmp_path / "logs" / f"{name}.log" for name in names]
        wait_for(lambda: all("ready" in log_tail(log) for log in logs))
        assert supervisor.stop(["c", "a", "b"], hurry=lambda: False) == []
    assert order.read_text().split() == ["c", "a", "b"]


def test_a_child_that_ignores_the_request_is_killed_in_time(tmp_path: Path) -> None:
    with supervising(tmp_path, role("worker", STUBBORN, stop_limit_s=0.2)) as (supervisor, _):
        pid = pids_of(supervisor)["worker"]
        wait_for(lambda: "ignoring" in log_tail(tmp_path / "logs" / "worker.log"))
        assert supervisor.stop(["worker"], hurry=lambda: False) == ["worker"]
        assert not is_running(pid)
        supervisor.tick()  # a stopped child does not come back
        assert pids_of(supervisor) == {}


def test_insisting_does_not_wait_for_the_limit(tmp_path: Path) -> None:
    with supervising(tmp_path, role("worker", STUBBORN, stop_limit_s=300)) as (supervisor, _):
        wait_for(lambda: "ignoring" in log_tail(tmp_path / "logs" / "worker.log"))
        started = time.monotonic()
        supervisor.stop(["worker"], hurry=lambda: True)
        assert time.monotonic() - started < PATIENCE_S


def test_an_exception_leaves_no_child(tmp_path: Path) -> None:
    pids: list[int] = []

    def fail() -> None:
        with supervising(tmp_path, role("worker", STUBBORN)) as (supervisor, _):
            pids.append(pids_of(supervisor)["worker"])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not is_running(pids[0])


def test_children_end_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    program = textwrap.dedent(f"""
        import sys
        from pathlib import Path
        from tests.gateway.test_supervisor import SLEEPER, pids_of, role, supervising
        with supervising(Path({str(tmp_path)!r}), role("worker", SLEEPER, watched=True)) as (s, _):
            print(pids_of(s)["worker"], flush=True)
            sys.stdin.read()
    """)
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert is_running(child)
        parent.kill()
    wait_for(lambda: not is_running(child))


def test_logs_are_private_and_bounded(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "worker.log"
    log.parent.mkdir()
    log.write_bytes(b"x" * (KEEP_LOG_BYTES + 1))
    with supervising(tmp_path, role("worker", SLEEPER)):
        assert log.stat().st_size < KEEP_LOG_BYTES
        assert log.stat().st_mode & 0o077 == 0
        assert log.with_suffix(".log.1").stat().st_size == KEEP_LOG_BYTES + 1


def test_the_tail_is_short_whatever_the_log(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    assert log_tail(log) == ""
    log.write_bytes(b"\xff\n" * 100_000 + b"last")
    tail = log_tail(log).splitlines()
    assert len(tail) == TAIL_LINES
    assert tail[-1] == "last"


@given(st.integers(1, 60), st.floats(0.01, 5), st.floats(5, 60))
def test_delays_grow_to_a_bound_and_end_in_giving_up(limit: int, first: float, top: float) -> None:
    policy = RestartPolicy(first_delay_s=first, max_delay_s=top, max_quick_deaths=limit)
    delays = [policy.delay_s(n) for n in range(1, limit)]
    assert all(delay is not None and first <= delay <= top for delay in delays)
    assert delays == sorted(delays, key=lambda d: d or 0.0)
    assert policy.delay_s(limit) is None

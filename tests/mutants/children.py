"""How is code run that may never end?  In child processes, with limits, a few at a time."""

import os
import resource
import time
from collections.abc import Callable, Iterator
from typing import Literal, TypeVar

Outcome = Literal["killed", "survived", "timeout", "unusable"]
Job = TypeVar("Job")

_MAX_MEMORY_BYTES = 8 * 1024**3
_WALL_RATIO = 6  # other processes want the same cores
_POLL_S = 0.004
_SURVIVED, _KILLED, _UNUSABLE = 0, 1, 2


def run_all(
    jobs: Iterator[tuple[Job, float, Callable[[], bool | None]]], *, num_workers: int
) -> Iterator[tuple[Job, Outcome]]:
    """Runs each (job, CPU seconds, body) in a child; outcomes come as children end.

    A body returns True for a fault that was noticed, False for one that was not, and None when it
    could not say. A child that dies, or is out of time, has noticed.
    """
    running: dict[int, tuple[Job, float]] = {}
    is_done = False
    while running or not is_done:
        while not is_done and len(running) < num_workers:
            following = next(jobs, None)
            if following is None:
                is_done = True
                break
            job, cpu_s, body = following
            deadline = time.monotonic() + _WALL_RATIO * cpu_s
            running[_start(body, cpu_s)] = (job, deadline)
        for pid, (job, deadline) in list(running.items()):
            outcome = _ended(pid, deadline)
            if outcome is not None:
                del running[pid]
                yield job, outcome
        time.sleep(_POLL_S)


def _ended(pid: int, deadline: float) -> Outcome | None:
    ended, status = os.waitpid(pid, os.WNOHANG)
    if ended == 0:
        if time.monotonic() < deadline:
            return None
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        return "timeout"
    if os.WIFSIGNALED(status):
        return "timeout"
    outcomes: dict[int, Outcome] = {_SURVIVED: "survived", _UNUSABLE: "unusable"}
    return outcomes.get(os.WEXITSTATUS(status), "killed")


def _start(body: Callable[[], bool | None], cpu_s: float) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = _KILLED
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        seconds = int(cpu_s) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY_BYTES, _MAX_MEMORY_BYTES))
        is_noticed = body()
        status = {True: _KILLED, False: _SURVIVED, None: _UNUSABLE}[is_noticed]
    finally:
        os._exit(status)

"""When may the next target begin?  Not while the one before still keeps processors busy.

A server may wait for more work by spinning for a second after its last answer; whoever is measured
next would have a processor less for that long.
"""

import time
from collections.abc import Callable, Sequence

from runtime.bench.load import Job, LoadRun
from runtime.bench.machine import busy_s
from runtime.bench.serving import Target

_QUIET_CPU = 0.1  # of a processor
_LOOK_S, _LONGEST_S = 0.25, 10.0


def wait_until_quiet(
    *,
    busy: Callable[[], float] = busy_s,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Until the whole machine idles for a quarter of a second; False after 10 s without one."""
    started_s = now()
    while now() - started_s < _LONGEST_S:
        busy_before, before_s = busy(), now()
        sleep(_LOOK_S)
        if busy() - busy_before <= _QUIET_CPU * (now() - before_s):
            return True
    return False


class AfterOthers:
    """A target that begins when the machine is quiet, or has not been for 10 s."""

    def __init__(self, target: Target, *, wait: Callable[[], bool] = wait_until_quiet) -> None:
        self.name = target.name
        self._target, self._wait = target, wait

    def run(self, jobs: Sequence[Job], *, concurrency: int) -> LoadRun:
        self._wait()
        return self._target.run(jobs, concurrency=concurrency)

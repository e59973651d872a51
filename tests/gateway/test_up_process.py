"""Does a whole installation start, heal and end as one, seen from outside?"""

import http.client
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from gateway.cli_support import ExitCode
from gateway.paths import Paths
from gateway.probes import client_context
from gateway.sockets import listen_tcp
from tests.gateway.stand_in import MAX_MISSES, NAMES, PROBE_INTERVAL_S, SLOW_PIECE_S, SLOW_PIECES
from tests.gateway.test_supervisor import is_running, wait_for
from tests.gateway.test_up import LOOPBACK
from tests.support.patience import PATIENCE_S
from tests.support.servers import free_port

REPO = Path(__file__).resolve().parents[2]
STARTED = re.compile(r"^(\d+) \w+ starts$", re.MULTILINE)
STOPPED = re.compile(r"^(\d+) \w+ stops$", re.MULTILINE)


class Installation:
    """One stand-in `up` in a process of its own."""

    def __init__(self, state: Path, verdict: str) -> None:
        self.state = state
        self.port = free_port()
        self.output = state / "up.out"
        with self.output.open("wb") as out:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.gateway.stand_in"),
                    *("up", str(state), str(self.port), verdict),
                ],
                cwd=REPO,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def said(self) -> str:
        return self.output.read_text()

    def log(self, name: str) -> str:
        path = self.state / "logs" / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def pids(self, name: str) -> list[int]:
        return [int(pid) for pid in STARTED.findall(self.log(name))]

    def wait_until(self, condition: Callable[[], bool]) -> None:
        def alive() -> None:
            assert self.process.poll() is None, self.said()

        wait_for(condition, tick=alive)


@contextmanager
def installed(verdict: str = "accept") -> Iterator[Installation]:
    """A short path: the socket below it has to fit into 107 bytes."""
    state = Path(tempfile.mkdtemp(prefix="starshade-"))
    up = Installation(state, verdict)
    try:
        yield up
    finally:
        up.process.kill()
        up.process.wait()
        all_pids = [pid for name in NAMES for pid in up.pids(name)]
        wait_for(lambda: not any(map(is_running, all_pids)))
        shutil.rmtree(state)


def ready(up: Installation) -> None:
    """The gateway serves, which it may do before the others have begun; wait for all three."""
    up.wait_until(lambda: "Ctrl-C stops everything" in up.said())
    up.wait_until(lambda: all(up.pids(name) for name in NAMES))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_it_tells_what_runs_and_stops_in_order_when_asked(number: signal.Signals) -> None:
    with installed() as up:
        ready(up)
        said = up.said()
        assert "SIMULATED TEE" in said
        assert f"https://127.0.0.1:{up.port}/v1" in said
        assert f"SSL_CERT_FILE={up.state}/ca.pem" in said
        assert "\x1b" not in said  # no terminal, no escape codes
        up.process.send_signal(number)
        assert up.process.wait(PATIENCE_S) == ExitCode.SUCCESS
        stops = [
            int(STOPPED.findall(up.log(name))[0]) for name in ("gateway", "worker", "observatory")
        ]
        assert stops == sorted(stops)
        listen_tcp(LOOPBACK, up.port).close()  # the port is free again


def test_a_killed_worker_comes_back_and_is_talked_about() -> None:
    with installed() as up:
        ready(up)
        (first,) = up.pids("worker")
        os.kill(first, signal.SIGKILL)
        up.wait_until(lambda: len(up.pids("worker")) == 2)
        assert "the worker was ended by SIGKILL; restarting" in up.said()


def test_a_stopped_worker_is_replaced_and_the_others_are_left_alone() -> None:
    with installed() as up:
        ready(up)
        (first,) = up.pids("worker")
        up.wait_until(lambda: "worker has answered" in up.log("worker"))
        os.kill(first, signal.SIGSTOP)
        up.wait_until(lambda: len(up.pids("worker")) == 2)
        assert "the worker did not answer any more and was killed; restarting" in up.said()
        assert (len(up.pids("gateway")), len(up.pids("observatory"))) == (1, 1)


def test_a_gateway_that_drains_is_not_taken_for_stuck() -> None:
    """A stream that takes longer than its supervisor is patient goes on to its end."""
    assert SLOW_PIECES * SLOW_PIECE_S > 3 * MAX_MISSES * PROBE_INTERVAL_S
    with installed() as up:
        ready(up)
        up.wait_until(lambda: "gateway has answered" in up.log("gateway"))
        context = client_context(Paths(state_dir=up.state, cache_dir=up.state))
        client = http.client.HTTPSConnection(LOOPBACK, up.port, timeout=30, context=context)
        with closing(client):
            client.request("GET", "/slow")
            answer = client.getresponse()
            assert answer.read(1) == b"p"
            os.kill(up.pids("gateway")[0], signal.SIGTERM)
            assert answer.read().count(b"iece.") == SLOW_PIECES
        up.wait_until(lambda: len(up.pids("gateway")) == 2)
        assert "did not answer any more" not in up.said()


def test_no_child_survives_a_killed_supervisor() -> None:
    with installed() as up:
        ready(up)
        pids = [pid for name in NAMES for pid in up.pids(name)]
        assert len(pids) == len(NAMES)
        up.process.kill()
        wait_for(lambda: not any(map(is_running, pids)))


def test_a_refused_worker_ends_with_status_10_and_the_code() -> None:
    with installed("refuse") as up:
        started = time.monotonic()
        assert up.process.wait(PATIENCE_S) == ExitCode.REJECTED, up.said()
        assert time.monotonic() - started < 20
        assert "[untrusted_root]" in up.said()
        assert "next:  use a machine with a supported TEE" in up.said()
        assert not any(is_running(pid) for name in NAMES for pid in up.pids(name))

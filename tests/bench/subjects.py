"""What is measured beside what?  One subject is an engine with a model file and a way to ask it.

A subject's ``single`` runs one round in processes of its own and ends them, so that nothing of one
subject is there while another is measured. Cases are named alike: ``prefill 512``, ``decode 128``.
"""

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from runtime.bench.machine import busy_s, process_tree

PREFILL_TOKENS = (128, 512, 2048)
DECODE_CONTEXTS = (128, 1024)
DECODE_TOKENS = 48
TIMEOUT_S = 900.0
REPOSITORY = Path(__file__).resolve().parents[2]


class PeerFailed(Exception):
    """A peer is not there, or does not answer as it did when this was written."""


class Subject(Protocol):
    """One engine with one model file."""

    name: str
    version: str
    foreign_cpu: float  # the most that others used while one of its commands ran

    def single(self) -> Mapping[str, float]:
        """One round of the single-stream cases: tokens per second by case. Raises: PeerFailed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """What a command printed, and how many processors others used meanwhile (2.0: two whole)."""

    output: str
    foreign_cpu: float


def run_command(
    command: Sequence[str | Path], *, stdin: str = "", environment: Mapping[str, str] | None = None
) -> Finished:
    """Raises: PeerFailed when it cannot be started, fails or takes too long."""
    before, own, started_s = busy_s(), children_s(), time.monotonic()
    try:
        done = subprocess.run(
            [str(part) for part in command],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env={**os.environ, **(environment or {})},  # noqa: TID251 - this is a process edge
            cwd=REPOSITORY,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as err:
        raise PeerFailed(f"{Path(command[0]).name}: {type(err).__name__}") from err
    elapsed_s = time.monotonic() - started_s
    if done.returncode:
        raise PeerFailed(f"{Path(command[0]).name} exit {done.returncode}: {done.stderr[-400:]}")
    foreign = (busy_s() - before - (children_s() - own)) / elapsed_s
    return Finished(output=done.stdout, foreign_cpu=max(0.0, foreign))


def parse_json(output: str, what: str) -> Any:
    """Raises: PeerFailed."""
    try:
        return json.loads(output)
    except ValueError as err:
        raise PeerFailed(f"{what} printed no JSON") from err


def children_s() -> float:
    """Processor seconds of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def tree_s(pid: int) -> float:
    """Processor seconds of a living tree of processes, ended children included."""
    total = 0
    for each in process_tree(pid):
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15]))
    return total / os.sysconf("SC_CLK_TCK")

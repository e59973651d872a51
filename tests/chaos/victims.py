"""How long do honest tenants wait for their first token, and is it longer than it was?"""

import contextlib
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from tests.chaos.processes import Processes

MAX_RATIO: Final = 1.2
QUANTILE: Final = 0.95
_REPO: Final = Path(__file__).resolve().parents[2]
_RESAMPLES: Final = 2000
_CONFIDENCE: Final = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """p95 with a crowd over p95 without, and the 95 % interval of that ratio."""

    quiet_p95_s: float
    crowd_p95_s: float
    low: float
    high: float

    @property
    def ratio(self) -> float:
        return self.crowd_p95_s / self.quiet_p95_s

    @property
    def is_beyond(self) -> bool:
        """Shown to be more than it may be; a wide interval shows nothing."""
        return self.low > MAX_RATIO

    @property
    def is_within(self) -> bool:
        return self.ratio <= MAX_RATIO


def compare(quiet: Sequence[float], crowd: Sequence[float], *, seed: int = 1) -> Comparison:
    """By bootstrap over the samples."""
    rng = random.Random(seed)
    ratios = sorted(
        quantile(rng.choices(crowd, k=len(crowd))) / quantile(rng.choices(quiet, k=len(quiet)))
        for _ in range(_RESAMPLES)
    )
    tail = round((1 - _CONFIDENCE) / 2 * _RESAMPLES)
    return Comparison(
        quiet_p95_s=quantile(quiet),
        crowd_p95_s=quantile(crowd),
        low=ratios[tail],
        high=ratios[-1 - tail],
    )


def quantile(samples: Sequence[float], q: float = QUANTILE) -> float:
    """Nearest rank."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(q * len(ordered)))]


def first_token_s(client: httpx.Client, body: dict[str, Any]) -> float:
    """From sending to the first event with text; the stream is read to its end."""
    started_s, first_s = time.perf_counter(), None
    with client.stream("POST", "/v1/chat/completions", json=body) as response:
        assert response.status_code == 200, response.read()
        for line in response.iter_lines():
            if first_s is None and line.startswith("data: {"):
                choices = json.loads(line.removeprefix("data: "))["choices"]
                if choices and choices[0]["delta"].get("content"):
                    first_s = time.perf_counter()
    assert line == "" or line == "data: [DONE]", line
    assert first_s is not None
    return first_s - started_s


def window(running: Processes, num_requests: int) -> list[float]:
    """TTFT of as many requests, one after the other on one connection."""
    body = running.body(stream=True, max_tokens=4, ignore_eos=True)
    with running.client() as client:
        first_token_s(client, body)  # the handshake is not measured
        return [first_token_s(client, body) for _ in range(num_requests)]


@contextlib.contextmanager
def crowd(running: Processes, kind: str, size: int) -> Iterator[dict[str, int]]:
    """All of them are there; the counts are filled in when they have gone."""
    arguments = ["--port", str(running.config.gateway.port), "--size", str(size)]
    counts: dict[str, int] = {}
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "tests.chaos.crowd", kind, *arguments),
            *("--ca", str(running.config.paths.ca_cert)),
        ],
        cwd=_REPO,
        env={**running.environ, "STARSHADE_API_KEY": running.other_key},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"ready\n"
            yield counts
            process.stdin.close()
            counts |= json.loads(process.stdout.read())
        finally:
            process.kill()


def measure(
    running: Processes, kind: str, *, size: int, rounds: int, num_requests: int
) -> tuple[Comparison, dict[str, int]]:
    """Quiet and crowded windows in turn, so that a busy machine is busy for both."""
    quiet: list[float] = []
    crowded: list[float] = []
    total: dict[str, int] = {}
    for _ in range(rounds):
        quiet += window(running, num_requests)
        with crowd(running, kind, size) as counts:
            crowded += window(running, num_requests)
        for name, number in counts.items():
            total[name] = total.get(name, 0) + number
    return compare(quiet, crowded), total

"""Does a real Locust run, end to end, report what a server of known schedule did?"""

import dataclasses
from pathlib import Path

import pytest

from loadtest.load_profile import Arrivals, Phases, Profile, load_profile
from loadtest.records import SKIPPED
from loadtest.runner import run_profile
from loadtest.summary import RunSummary, summarize
from tests.loadtest.conftest import target_for
from tests.support.schedule_server import Schedule, schedule_server

API_KEY = "sk-starshade-canary-5b1d"


def _run(
    profile: Profile, certificate: tuple[Path, Path], schedule: Schedule
) -> tuple[RunSummary, list[int]]:
    progress: list[int] = []
    with schedule_server(*certificate, schedule) as port:
        finished = run_profile(
            profile,
            target_for(port, certificate[0]),
            model="m",
            api_key=API_KEY,
            on_progress=lambda done, total: progress.append(done * 1000 // max(1, total)),
        )
    assert [record.seq for record in finished.records] == list(range(finished.num_planned))
    return summarize(finished.records, profile), progress


def _profile(*, rate_per_s: float, measure_s: float, max_in_flight: int = 64) -> Profile:
    return dataclasses.replace(
        load_profile("smoke"),
        max_in_flight=max_in_flight,
        arrivals=Arrivals(kind="constant", rate_per_s=rate_per_s),
        phases=Phases(warmup_s=0.5, measure_s=measure_s, drain_s=10),
    )


def test_a_run_reports_the_known_schedule(certificate: tuple[Path, Path]) -> None:
    schedule = Schedule(ttft_s=0.06, gap_s=0.01, num_tokens=10)
    summary, progress = _run(_profile(rate_per_s=20, measure_s=3), certificate, schedule)
    assert summary.failed == 0
    assert summary.requests == pytest.approx(60, abs=1)
    assert summary.ttft_from_dispatch_s.p50 == pytest.approx(0.06, abs=0.03)
    assert summary.itl_s.count == summary.requests * 9
    assert summary.itl_s.p50 == pytest.approx(0.01, abs=0.004)
    assert summary.cached_tokens * 40 == summary.prompt_tokens * 16
    assert progress[-1] == 1000


def test_a_frozen_server_shows_in_the_tail(certificate: tuple[Path, Path]) -> None:
    """A closed loop of a few users would report one slow request and hide the rest."""
    schedule = Schedule(ttft_s=0, gap_s=0, num_tokens=2, freeze_at_s=1.5, freeze_s=1.5)
    summary, _ = _run(_profile(rate_per_s=20, measure_s=4), certificate, schedule)
    assert summary.ttft_s.p99 is not None
    assert summary.ttft_s.p99 > 1.2
    assert summary.ttft_s.p90 is not None
    assert summary.ttft_s.p90 > 0.9  # 37 % of arrivals fell into the freeze


def test_requests_beyond_the_in_flight_limit_are_recorded(certificate: tuple[Path, Path]) -> None:
    profile = _profile(rate_per_s=20, measure_s=2, max_in_flight=2)
    summary, _ = _run(profile, certificate, Schedule(ttft_s=1.0, gap_s=0, num_tokens=1))
    assert summary.errors[SKIPPED] > 20
    assert "in_flight_limit_reached" in summary.invalid_reasons

"""How is one run made?  Plan, Locust in a process of its own, records, summary, telemetry.db."""

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from loadtest.arrivals import arrival_offsets_s
from loadtest.client import Target
from loadtest.errors import GeneratorFailed
from loadtest.load_profile import Profile
from loadtest.plan import PLAN_VARIABLE, LoadPlan
from loadtest.records import RequestRecord, load_records
from loadtest.workloads import plan_requests

_GRACE_S = 30.0  # process start-up and Locust's own shutdown
_POLL_S = 0.2
_LOCUSTFILE = Path(__file__).with_name("locustfile.py")

OnProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun:
    """Every record of one run, warm-up included, in the order of their intended times."""

    records: tuple[RequestRecord, ...]
    num_planned: int


def run_profile(
    profile: Profile,
    target: Target,
    *,
    model: str,
    api_key: str,
    on_progress: OnProgress,
) -> FinishedRun:
    """Run one profile with Locust as a subprocess.

    Raises: GeneratorFailed when Locust ends without one record for each planned request.
    """
    rng = random.Random(profile.seed)  # noqa: S311 - reproducible load, not a secret
    phases = profile.phases
    offsets = arrival_offsets_s(
        profile.arrivals, duration_s=phases.warmup_s + phases.measure_s, rng=rng
    )
    requests = plan_requests(profile.workload, offsets, warmup_s=phases.warmup_s, rng=rng)
    with tempfile.TemporaryDirectory(prefix="starshade-load-") as folder:
        plan = LoadPlan(
            target=target,
            model=model,
            max_in_flight=profile.max_in_flight,
            drain_s=phases.drain_s,
            records_path=Path(folder) / "records.jsonl",
            requests=tuple(requests),
        )
        plan.save(Path(folder) / "plan.json")
        log = _run_locust(plan, Path(folder), api_key=api_key, on_progress=on_progress)
        records = load_records(plan.records_path) if plan.records_path.exists() else []
    if len(records) != len(requests):
        raise GeneratorFailed(f"{len(records)} of {len(requests)} records; Locust said:\n{log}")
    return FinishedRun(records=tuple(records), num_planned=len(requests))


def _run_locust(plan: LoadPlan, folder: Path, *, api_key: str, on_progress: OnProgress) -> str:
    environment = dict(os.environ)  # noqa: TID251 - a subprocess is started here
    environment[PLAN_VARIABLE] = str(folder / "plan.json")
    environment["STARSHADE_API_KEY"] = api_key
    command = [sys.executable, "-m", "locust", "--locustfile", str(_LOCUSTFILE), "--headless"]
    command += ["--users", "1", "--spawn-rate", "1", "--only-summary", "--loglevel", "WARNING"]
    last_s = plan.requests[-1].intended_s if plan.requests else 0.0
    deadline_s = last_s + plan.drain_s + _GRACE_S
    log_path = folder / "locust.log"
    with log_path.open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and file
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=_LOCUSTFILE.parents[1],
        )
        try:
            _wait(process, plan, deadline_s=deadline_s, on_progress=on_progress)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
    return log_path.read_text("utf-8", errors="replace")[-2000:]


def _wait(
    process: subprocess.Popen[bytes],
    plan: LoadPlan,
    *,
    deadline_s: float,
    on_progress: OnProgress,
) -> None:
    waited_s, has_ended, lines = 0.0, False, _LineCount(plan.records_path)
    while waited_s < deadline_s and not has_ended:
        try:
            process.wait(timeout=_POLL_S)
        except subprocess.TimeoutExpired:
            waited_s += _POLL_S
        else:
            has_ended = True
        on_progress(lines.count(), len(plan.requests))


class _LineCount:
    """Counts the lines of a growing file; reads each byte once, for the generator needs the CPU."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._num_bytes = self._num_lines = 0

    def count(self) -> int:
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._num_bytes)
                new = file.read()
            self._num_bytes += len(new)
            self._num_lines += new.count(b"\n")
        return self._num_lines


def config_json(profile: Profile, target: Target, *, model: str) -> str:
    """What produced the run, for the stored row: the profile whole, no paths, no credentials."""
    where = f"https://{target.host}:{target.port}{target.path_prefix}"
    return json.dumps({"profile": asdict(profile), "model": model, "target": where})

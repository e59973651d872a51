"""What does the generator process need to know?  Written by the command, read by the locustfile.

The API key is not part of it: it travels in the environment and never touches the disk.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from loadtest.client import Target
from loadtest.workloads import PlannedRequest

PLAN_VARIABLE = "STARSHADE_LOAD_PLAN"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """One run: the target, every request with its intended time, and where records go."""

    target: Target
    model: str
    max_in_flight: int
    drain_s: float
    records_path: Path
    requests: tuple[PlannedRequest, ...]

    def save(self, path: Path) -> None:
        """Write as JSON, readable by this user alone."""
        path.touch(mode=0o600)
        path.write_text(json.dumps(asdict(self), default=str), "utf-8")


def load_plan(path: Path) -> LoadPlan:
    """The plan that ``LoadPlan.save`` wrote."""
    values = json.loads(path.read_text("utf-8"))
    target = values.pop("target")
    shown = target.pop("client_certificate")
    requests = tuple(PlannedRequest(**request) for request in values.pop("requests"))
    return LoadPlan(
        target=Target(
            **{**target, "ca_path": Path(target["ca_path"])},
            client_certificate=None if shown is None else (Path(shown[0]), Path(shown[1])),
        ),
        requests=requests,
        records_path=Path(values.pop("records_path")),
        **values,
    )

"""How many requests have ended, and how?  Counted since the process began, for GET /metrics.

Labels come from closed sets: paths of our own routes and codes of our own table.
[Prometheus text exposition format 0.0.4]
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from gateway.facts import RequestFacts

MEDIA_TYPE: Final = "text/plain; version=0.0.4"
OK: Final = "ok"


@dataclass(slots=True)
class RequestCounts:
    """On the event loop only."""

    _ended: Counter[tuple[str, str]] = field(default_factory=Counter)
    prompt_tokens: int = 0
    output_tokens: int = 0

    def ended(self, facts: RequestFacts) -> None:
        self._ended[facts.route, facts.error_code or OK] += 1
        if facts.has_usage:
            self.prompt_tokens += facts.timeline.prompt_tokens or 0
            self.output_tokens += facts.timeline.output_tokens

    def by_path_and_code(self) -> Mapping[tuple[str, str], int]:
        return self._ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One value of a metric; its labels are identifiers, which need no escape."""

    value: int
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A name with all its samples."""

    name: str
    kind: str  # counter or gauge
    text: str
    samples: tuple[Sample, ...]


def exposition(metrics: Iterable[Metric]) -> str:
    """The whole page."""
    return "".join(line for metric in metrics for line in _lines(metric))


def _lines(metric: Metric) -> Iterable[str]:
    yield f"# HELP {metric.name} {metric.text}\n"
    yield f"# TYPE {metric.name} {metric.kind}\n"
    for sample in metric.samples:
        labels = ",".join(f'{name}="{value}"' for name, value in sample.labels.items())
        shown = f"{{{labels}}}" if labels else ""
        yield f"{metric.name}{shown} {sample.value}\n"

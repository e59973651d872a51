"""What did the rounds say?  Medians beside each other, and by how much the first subject leads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from runtime.bench.report import rounded
from runtime.bench.summary import Summary, summarize


@dataclass(slots=True)
class Samples:
    """Tokens per second by case and subject, in the order of their first appearance."""

    by_case: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, subject: str, speeds: Mapping[str, float]) -> None:
        for case, speed in speeds.items():
            self.by_case.setdefault(case, {}).setdefault(subject, []).append(speed)

    def rows(self) -> list[dict[str, object]]:
        """JSON-ready; ``ratio`` is the first subject's median over the row's own."""
        found: list[dict[str, object]] = []
        for case, by_subject in self.by_case.items():
            summaries = {name: summarize(samples) for name, samples in by_subject.items()}
            lead = next(iter(summaries.values())).median
            found += [
                {
                    "case": case,
                    "subject": name,
                    "tokens_per_s": rounded(summary.median),
                    "p10": rounded(summary.p10),
                    "p90": rounded(summary.p90),
                    "n": summary.n,
                    "ratio": rounded(lead / summary.median),
                }
                for name, summary in summaries.items()
            ]
        return found

    def markdown(self) -> str:
        """A row for each case; a peer's cell has its median and how many times we are as fast."""
        subjects = list(dict.fromkeys(name for row in self.by_case.values() for name in row))
        lines = [_line(["tokens/s", *subjects]), _line(["---"] * (1 + len(subjects)))]
        for case, by_subject in self.by_case.items():
            summaries = {name: summarize(samples) for name, samples in by_subject.items()}
            lead = next(iter(summaries.values())).median
            cells = [_cell(summaries.get(name), lead) for name in subjects]
            lines.append(_line([case, *cells]))
        return "\n".join(lines)


def _cell(summary: Summary | None, lead: float) -> str:
    if summary is None:
        return ""
    spread = f"{summary.median:.4g} ({summary.p10:.4g} to {summary.p90:.4g})"
    return spread if summary.median == lead else f"{spread}, {lead / summary.median:.2f} x"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"

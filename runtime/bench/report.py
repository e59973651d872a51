"""How is a measurement told: one JSON object for programs, one table for people?

The object of every command has ``schema``, ``command``, ``model``, ``settings``, ``machine``,
``versions``, ``commit``, ``load_average`` and ``results``, a list of flat rows. Where the first
row has a speed, its ``tokens_per_s`` (the median), ``p10``, ``p90`` and ``n`` are repeated on top.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import click

from runtime.bench.machine import describe_machine, describe_versions, find_commit, load_average
from runtime.bench.summary import Summary, summarize

SCHEMA_VERSION = 1
_PACKAGES = ("starshade", "numpy", "tokenizers", "torch")
_HEADLINE = ("tokens_per_s", "p10", "p90", "n")
_SIGNIFICANT_DIGITS = 4

Cell: TypeAlias = "str | int | float | None"
Row: TypeAlias = "Mapping[str, Cell]"


class NotMeasurable(click.ClickException):
    """The benchmark cannot be run as asked for, or a number would not mean what it says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One command's measurement; ``started_load`` is the load average before it."""

    command: str
    model: Mapping[str, Cell]
    settings: Mapping[str, object]
    results: Sequence[Row]
    started_load: float
    more: Mapping[str, Cell] = field(default_factory=dict)  # of the whole measurement

    def to_json(self) -> str:
        return json.dumps(self.document(), indent=2)

    def document(self) -> dict[str, object]:
        first = self.results[0] if self.results else {}
        return {
            "schema": SCHEMA_VERSION,
            "command": self.command,
            **{key: first[key] for key in _HEADLINE if "tokens_per_s" in first and key in first},
            **self.more,
            "model": dict(self.model),
            "settings": dict(self.settings),
            "machine": describe_machine(),
            "versions": describe_versions(_PACKAGES),
            "commit": find_commit(),
            "load_average": [round(self.started_load, 2), round(load_average(), 2)],
            "results": [dict(row) for row in self.results],
        }

    def show(self, *, as_json: bool) -> None:
        if as_json:
            click.echo(self.to_json())
            return
        document = self.document()
        settings = ", ".join(f"{key} {value}" for key, value in self.settings.items())
        before, after = self.started_load, load_average()
        click.echo(f"{self.command}: {self.model.get('name')}, {settings}")
        click.echo(f"{document['machine']}; load average {before:.1f} to {after:.1f}")
        click.echo(format_table(self.results))
        for name, value in self.more.items():
            click.echo(f"{name}: {_shown(value)}")


def speed_row(name: str, samples: Sequence[float], **more: Cell) -> dict[str, Cell]:
    """A row about tokens per second."""
    summary: Summary = summarize(samples)
    return {
        "name": name,
        "tokens_per_s": rounded(summary.median),
        "p10": rounded(summary.p10),
        "p90": rounded(summary.p90),
        "n": summary.n,
        **more,
    }


def rounded(value: float) -> float:
    """To four significant digits: more would be noise."""
    return float(f"{value:.{_SIGNIFICANT_DIGITS}g}")


def format_table(rows: Sequence[Row]) -> str:
    """Text columns, one for each key that any row has; numbers to the right."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[_shown(row.get(key)) for key in keys] for row in rows]
    widths = [
        max(len(key), *(len(row[i]) for row in cells)) if cells else len(key)
        for i, key in enumerate(keys)
    ]
    is_text = [any(isinstance(row.get(key), str) for row in rows) for key in keys]
    lines = [
        "  ".join(
            text.ljust(width) if left else text.rjust(width)
            for text, width, left in zip(line, widths, is_text, strict=True)
        ).rstrip()
        for line in (keys, *cells)
    ]
    return "\n".join(lines)


def _shown(value: Cell) -> str:
    if value is None:
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)

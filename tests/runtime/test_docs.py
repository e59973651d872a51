"""Do the pages name every fact of a step?"""

import re
from dataclasses import fields
from pathlib import Path

from runtime import ScheduleStats, StepStats

REPO = Path(__file__).parents[2]


def test_the_page_of_metrics_explains_every_fact_of_the_schedule() -> None:
    page = (REPO / "docs" / "metrics.md").read_text("utf-8")
    section = page.split("## Facts of a step")[1].split("\n## ")[0]
    of_schedule, beside = section.split("Beside `step.schedule`")
    assert _documented(of_schedule) == [field.name for field in fields(ScheduleStats)]
    assert set(_documented(beside)) <= {field.name for field in fields(StepStats)}


def _documented(text: str) -> list[str]:
    return re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)

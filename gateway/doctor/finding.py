"""What did one check find?  A word, a sentence, and when it is not well, a code and what to do."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from gateway.cli_support import Failure

Outcome = Literal["ok", "warning", "wrong"]

SCHEMA = "starshade/doctor/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """``wrong`` keeps something from working; a ``warning`` is worth knowing and does not."""

    name: str
    outcome: Outcome
    found: str
    code: str = ""
    next_step: str = ""


def ok(name: str, found: str) -> Finding:
    return Finding(name=name, outcome="ok", found=found)


def warning(name: str, found: str, *, code: str, next_step: str) -> Finding:
    return Finding(name=name, outcome="warning", found=found, code=code, next_step=next_step)


def wrong(name: str, found: str, *, code: str, next_step: str) -> Finding:
    return Finding(name=name, outcome="wrong", found=found, code=code, next_step=next_step)


def of_failure(name: str, failure: Failure | None, *, well: str) -> Finding:
    """What `starshade up` would have complained about, or that it would not."""
    if failure is None:
        return ok(name, well)
    return wrong(name, failure.message, code=failure.code, next_step=failure.next_step)


def is_well(findings: Sequence[Finding]) -> bool:
    return all(finding.outcome != "wrong" for finding in findings)


def report(findings: Sequence[Finding]) -> dict[str, Any]:
    """For programs; every member of a finding is always there."""
    return {
        "schema": SCHEMA,
        "ok": is_well(findings),
        "findings": [asdict(finding) for finding in findings],
    }

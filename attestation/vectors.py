"""Do the published cases hold?  Each case of a vector folder is run at its own time and compared.

A family's ``cases.py`` has ``run_case``; here is which folder it serves, and what counts as right.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Protocol, cast


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseOutcome:
    """What a family made of one case.

    ``code`` is the error class of a rejection. ``reported`` holds values found on the way, under
    the names that ``expected`` uses (tcb_status, advisories, status, product, ...); those that the
    case expects are compared whatever the verdict.
    """

    verdict: Literal["accept", "reject"]
    code: str | None = None
    reported: Mapping[str, object] = field(default_factory=dict)


class CaseRunner(Protocol):
    """Runs one case; paths in ``inputs`` are relative to ``folder``; ``at`` is the only clock."""

    def __call__(
        self, inputs: Mapping[str, Any], case: Mapping[str, Any], folder: Path, *, at: datetime
    ) -> CaseOutcome:
        """Bad Evidence is an outcome; whatever it raises is a defect of ours."""


_RUNNERS = {  # folder: module with run_case, imported when a case of that folder is run
    "tdx": "attestation.tdx.cases",
    "tdx-synthetic": "attestation.tdx.cases",
    "snp": "attestation.snp.cases",
    "nvidia": "attestation.nvidia.cases",
    "jwt": "attestation.nras.cases",
    "nitro": "attestation.nitro.cases",
}
FOLDERS = tuple(_RUNNERS)


def case_runner(folder_name: str) -> CaseRunner:
    """The runner for a folder of this name.  Raises: KeyError: no family serves it."""
    return cast("CaseRunner", importlib.import_module(_RUNNERS[folder_name]).run_case)

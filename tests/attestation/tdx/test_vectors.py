"""The published TDX and SGX cases hold, and reach their TCB status on the way."""

import json
from datetime import datetime

import pytest

from attestation.tdx.cases import run_case
from attestation.vectors import run_vectors
from tests.support.resources import vectors_dir


@pytest.mark.parametrize(("folder", "num_cases"), [("tdx", 83), ("tdx-synthetic", 42)])
def test_published_cases(folder: str, num_cases: int) -> None:
    results = list(run_vectors(vectors_dir() / "attestation" / folder))

    assert {result.case_id: result.problem for result in results if result.problem} == {}
    assert len(results) == num_cases


def test_synthetic_cases_reach_their_tcb_status() -> None:
    """The merged status on the way to the verdict is the reference's, not only the rejection."""
    folder = vectors_dir() / "attestation" / "tdx-synthetic"
    num_compared = 0
    for case in json.loads((folder / "negative.json").read_bytes())["cases"]:
        reference = case.get("reference_appraisal") or {}
        at = datetime.fromisoformat(case["verify_at"])
        reported = run_case(case["inputs"], case, folder, at=at).reported
        if reference.get("status") and "tcb_status" in reported:
            num_compared += 1
            assert reported["tcb_status"] == reference["status"], case["id"]
            assert reported["advisories"] == reference["advisories"], case["id"]
    assert num_compared == 20

"""The published NRAS cases hold."""

from attestation.vectors import run_vectors
from tests.support.resources import vectors_dir

_NUM_CASES = 33


def test_published_cases() -> None:
    results = list(run_vectors(vectors_dir() / "attestation" / "jwt"))

    assert {result.case_id: result.problem for result in results if result.problem} == {}
    assert len(results) == _NUM_CASES
    assert sum(result.outcome.verdict == "accept" for result in results) == 3

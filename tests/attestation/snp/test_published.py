"""Every published SNP case, each at its own time, gives its verdict and class."""

from attestation.vectors import run_vectors
from tests.support.resources import vectors_dir

_NUM_CASES = 84


def test_every_case_holds() -> None:
    results = list(run_vectors(vectors_dir() / "attestation" / "snp"))

    assert {r.case_id: r.problem for r in results if r.problem} == {}
    assert len(results) == _NUM_CASES

"""`bench attest` runs on real Evidence and reports what a comparison needs; speed is not judged."""

import json
from importlib.util import find_spec

import pytest
from click.testing import CliRunner

from attestation.bench import Subject, attest, measure
from tests.support.resources import vectors_dir


def test_each_subject_is_run_in_turn_and_summed_with_its_signatures() -> None:
    calls: list[str] = []
    subjects = [
        Subject(name="signature p256", run=lambda: calls.append("signature")),
        Subject(name="verdict", run=lambda: calls.append("verdict"), signatures={"p256": 3}),
    ]

    unit, verdict = measure(subjects, repeat=10)

    assert calls == ["signature", "verdict"] * 15  # 5 rounds to warm up
    assert (unit.n, verdict.n) == (10, 10)
    assert verdict.signatures_us == pytest.approx(3 * unit.median_us)
    assert verdict.p10_us <= verdict.median_us <= verdict.p90_us


@pytest.mark.bench
def test_the_command_reports_every_family() -> None:
    arguments = ["--vectors", str(vectors_dir()), "--repeat", "10", "--json"]
    result = CliRunner().invoke(attest, arguments)

    assert result.exit_code == 0, result.output
    document = json.loads(result.output)
    names = {entry["name"] for entry in document["results"]}
    assert {"tdx cold", "tdx cached", "snp cold", "gpu cold"} <= names
    assert all(entry["n"] == 10 for entry in document["results"])
    has_theirs = find_spec("dcap_qvl") is not None
    assert set(document["of_dcap_qvl"]) == ({"tdx cold", "tdx cached"} if has_theirs else set())

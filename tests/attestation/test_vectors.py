"""Published cases are compared strictly, and a folder that nobody serves is not passed over."""

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from attestation.vectors import CaseOutcome, NotVectors, difference, run_vectors
from tests.support.resources import vectors_dir

_NUM_CASES = {
    "tdx": 83,
    "tdx-synthetic": 42,
    "snp": 84,
    "nvidia": 102,
    "jwt": 33,
    "nitro": 18,
    "composite": 1,
}
_REJECT = {"verdict": "reject", "any_of": ["format", "chain"]}
_SOFT = {"verdict": "reject", "any_of": ["bad_key", "accepted_if_unused"]}
_ACCEPT = {"verdict": "accept", "tcb_status": "UpToDate"}
_REPORTED = {"tcb_status": "UpToDate"}
_DIFFERENT = {"verdict": "reject", "error_class": "measurement_mismatch", "mismatched": [[9, "x"]]}


@pytest.mark.parametrize(
    ("expected", "outcome"),
    [
        (_REJECT, CaseOutcome(verdict="reject", code="chain")),
        (_SOFT, CaseOutcome(verdict="reject", code="bad_key")),
        (_SOFT, CaseOutcome(verdict="accept")),
        (_ACCEPT, CaseOutcome(verdict="accept", reported=_REPORTED)),
        (_DIFFERENT, CaseOutcome(verdict="reject", code="measurement_mismatch")),
        (
            _DIFFERENT,
            CaseOutcome(
                verdict="reject", code="measurement_mismatch", reported={"mismatched": [[9, "x"]]}
            ),
        ),
    ],
)
def test_right_outcomes(expected: dict[str, object], outcome: CaseOutcome) -> None:
    assert difference(expected, outcome) is None


@pytest.mark.parametrize(
    ("expected", "outcome", "problem"),
    [
        (_REJECT, CaseOutcome(verdict="accept"), "accepted, want format or chain"),
        (_REJECT, CaseOutcome(verdict="reject", code="tcb_status"), "rejected with tcb_status"),
        (_SOFT, CaseOutcome(verdict="reject", code="format"), "rejected with format"),
        (_ACCEPT, CaseOutcome(verdict="reject", code="format"), "want it accepted"),
        (_ACCEPT, CaseOutcome(verdict="accept"), "tcb_status is None, want UpToDate"),
        (
            _DIFFERENT,
            CaseOutcome(verdict="reject", code="measurement_mismatch", reported={"mismatched": []}),
            "mismatched is",
        ),
    ],
)
def test_wrong_outcomes(expected: dict[str, object], outcome: CaseOutcome, problem: str) -> None:
    assert problem in (difference(expected, outcome) or "")


def test_cases_of_an_unknown_kind_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "manifest.json").write_text(json.dumps({"cases": []}))

    with pytest.raises(NotVectors, match="other"):
        list(run_vectors(tmp_path))


def test_a_folder_without_cases_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotVectors, match=r"manifest\.json"):
        list(run_vectors(tmp_path))


_CASE = {
    "id": "x",
    "verify_at": "2026-12-01T12:00:00Z",
    "inputs": {"doc": "doc"},
    "expected": {"verdict": "accept"},
}


def _nitro_folder(tmp_path: Path, cases: str) -> Path:
    folder = tmp_path / "nitro"
    folder.mkdir()
    (folder / "doc").write_bytes(b"")
    (folder / "manifest.json").write_text(cases)
    return folder


@pytest.mark.parametrize(
    "name", ["/etc/hostname", "../outside", "link", "loop", "pipe", "none", "", 5, None]
)
def test_a_case_reads_nothing_outside_its_folder(tmp_path: Path, name: object) -> None:
    folder = _nitro_folder(tmp_path, json.dumps({"cases": [{**_CASE, "inputs": {"doc": name}}]}))
    (tmp_path / "outside").write_bytes(b"")
    (folder / "link").symlink_to(tmp_path / "outside")
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "pipe")

    with pytest.raises(NotVectors, match="nitro"):
        list(run_vectors(folder))


@pytest.mark.parametrize(
    "cases",
    [
        "{",
        "[]",
        "[" * 100_000,
        '{"cases": {}}',
        '{"cases": [5]}',
        '{"cases": [{}]}',
        json.dumps({"cases": [{**_CASE, "verify_at": "noon"}]}),
        json.dumps({"cases": [{**_CASE, "verify_at": "2026-12-01T12:00:00"}]}),
        json.dumps({"cases": [{**_CASE, "inputs": {}}]}),
        json.dumps({"cases": [{**_CASE, "inputs": ["doc"]}]}),
        json.dumps({"cases": [{**_CASE, "expected": {}}]}),
        json.dumps({"cases": [{**_CASE, "expected": {"verdict": "maybe"}}]}),
        json.dumps({"cases": [{**_CASE, "expected": {"verdict": "reject", "any_of": 5}}]}),
    ],
    ids=range(13),
)
def test_cases_that_do_not_follow_the_schema_are_an_error(tmp_path: Path, cases: str) -> None:
    with pytest.raises(NotVectors, match="nitro"):
        list(run_vectors(_nitro_folder(tmp_path, cases)))


@pytest.mark.parametrize("nonce", [5, None, "zz"])
def test_a_value_of_another_form_is_an_error(tmp_path: Path, nonce: object) -> None:
    folder = tmp_path / "nvidia"
    folder.mkdir()
    (folder / "doc").write_bytes(b"")
    inputs = {"report": "doc", "chain": "doc", "nonce": nonce}
    (folder / "manifest.json").write_text(json.dumps({"cases": [{**_CASE, "inputs": inputs}]}))

    with pytest.raises(NotVectors, match="case x has a value of another form"):
        list(run_vectors(folder))


def test_all_published_cases_hold() -> None:
    results = list(run_vectors(vectors_dir() / "attestation"))

    assert {result.case_id: result.problem for result in results if result.problem} == {}
    assert Counter(result.folder for result in results) == _NUM_CASES
    assert len(results) == 363

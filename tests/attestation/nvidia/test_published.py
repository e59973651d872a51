"""Published GPU, switch, RIM and OCSP cases, each at its own time, give their verdict and class."""

import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from attestation.anchors import load_anchors
from attestation.errors import UntrustedEndorsement
from attestation.nvidia.cases import run_case
from attestation.nvidia.rim import verify_rim
from attestation.vectors import difference
from tests.support.resources import vectors_dir

_NUM_CASES = {"manifest.json": 41, "negative.json": 61}
_BEFORE_ITS_RIM = "nv-multi4-ls10-0-measurements-vs-NV_SWITCH_BIOS_5612_0002_890_96105"
_NUM_STAGES = {"report": 18, "measurements": 5, "ocsp": 15, None: 3}


def _cases(file: str) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads(
        (vectors_dir() / "attestation" / "nvidia" / file).read_text()
    )["cases"]
    return cases


@pytest.mark.parametrize("file", _NUM_CASES)
def test_published_cases(file: str) -> None:
    folder = vectors_dir() / "attestation" / "nvidia"

    problems = {
        case["id"]: difference(
            case["expected"],
            run_case(case["inputs"], case, folder, at=datetime.fromisoformat(case["verify_at"])),
        )
        for case in _cases(file)
    }

    assert len(problems) == _NUM_CASES[file]
    assert {name: problem for name, problem in problems.items() if problem} == {}


def test_a_rim_signed_later_is_for_recorded_evidence_alone() -> None:
    """One case is older than its RIM's signer, which RFC 5280 sec. 6.1.3 (a)(2) refuses."""
    folder = vectors_dir() / "attestation" / "nvidia"
    (case,) = (case for case in _cases("manifest.json") if case["id"] == _BEFORE_ITS_RIM)
    at = datetime.fromisoformat(case["verify_at"])
    xml = (folder / case["inputs"]["vbios_rim"]).read_bytes()

    with pytest.raises(UntrustedEndorsement) as refused:
        verify_rim(xml, anchors=load_anchors(), at=at)
    too_late = datetime(2028, 6, 1, tzinfo=UTC)
    with pytest.raises(UntrustedEndorsement) as ended:
        verify_rim(xml, anchors=load_anchors(), at=too_late, may_be_signed_later=True)

    assert (refused.value.code, ended.value.code) == ("certificate_time", "certificate_time")
    assert verify_rim(xml, anchors=load_anchors(), at=at, may_be_signed_later=True).kind == "switch"


def test_every_stage_has_its_cases() -> None:
    """A runner that skipped a stage would accept all of its good cases."""
    stages = Counter(case["expected"].get("stage") for case in _cases("manifest.json"))

    assert stages == _NUM_STAGES


def test_mismatched_blocks_are_named() -> None:
    """The pairs (index, source) are right, not only the class."""
    folder = vectors_dir() / "attestation" / "nvidia"
    compared = 0
    for case in _cases("manifest.json"):
        if case["expected"].get("error_class") != "measurement_mismatch":
            continue
        at = datetime.fromisoformat(case["verify_at"])
        outcome = run_case(case["inputs"], case, folder, at=at)
        assert outcome.reported["mismatched"] == case["expected"]["mismatched"], case["id"]
        compared += 1
    assert compared == 2

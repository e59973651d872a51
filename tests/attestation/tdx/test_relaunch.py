"""A TD that was launched under an old TDX module says so, and the checked-in vectors hold."""

import base64
import json
from datetime import datetime
from pathlib import Path

import pytest

from attestation.anchors import load_anchors
from attestation.checks import CheckLog
from attestation.errors import EndorsementMismatch
from attestation.tdx.endorsements import TdxCollateral
from attestation.tdx.verifier import TdxVerifier
from tests.attestation.samples import AT
from tests.attestation.tdx.td15 import RELAUNCHES
from tests.vectors.tdx_relaunch import generate

_FILES = sorted(generate.FOLDER.glob("*.json"))


def test_the_generator_makes_exactly_these_files() -> None:
    made = {name: generate.render(document) for name, document in generate.vectors()}

    assert made == {path.name: path.read_text() for path in _FILES}


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_vector(path: Path) -> None:
    vector = json.loads(path.read_text())
    expect, log = vector["expect"], CheckLog()

    def verify() -> str:
        claims = TdxVerifier(anchors=load_anchors()).verify(
            base64.b64decode(vector["input"]["quote_b64"]),
            TdxCollateral.from_json_value(vector["input"]["collateral"]),
            at=datetime.fromisoformat(vector["input"]["verify_at"]),
            log=log,
        )
        return claims.tcb.status

    if "tcb_status" in expect:
        assert verify() == expect["tcb_status"]
        return
    with pytest.raises(EndorsementMismatch) as caught:
        verify()
    assert caught.value.code == expect["code"]
    assert log.checks[-1].name == "tdx_module_now"


def test_advice_names_the_advisories_and_the_date_of_both_levels() -> None:
    case = next(case for case in RELAUNCHES if case.name == "hardening needed now")
    quote, collateral = case.evidence()

    claims = TdxVerifier(anchors=load_anchors()).verify(quote, collateral, at=AT, log=CheckLog())

    assert claims.tcb.advisories == ("INTEL-SA-00001", "INTEL-SA-00002")
    assert f"{claims.tcb.tcb_date:%Y-%m-%d}" == "2023-08-09"

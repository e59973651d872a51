"""The checked-in RIM and OCSP vectors: still what the generator makes, still judged as they say."""

import base64
import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from attestation.errors import AttestationError
from attestation.nvidia.ocsp import verify_ocsp
from attestation.nvidia.rim import verify_rim
from attestation.x509 import parse_chain
from tests.vectors.nvidia_refs import generate, ocsp_cases, rim_cases
from tests.vectors.nvidia_refs.pki import anchors

_FILES = sorted(generate.FOLDER.glob("*.json"))
_PKI: dict[str, Any] = json.loads((generate.FOLDER / generate.PKI_FILE).read_text())
_AT = datetime.fromisoformat(_PKI["verify_at"])
_GOOD: str = json.loads((generate.FOLDER / generate.GOOD_RIM_FILE).read_text())["input"]["rim"]
_SIGNER, _L3 = (
    parse_chain(_PKI["certificates"][name].encode(), what=name, key_kinds=frozenset({"p384"}))[0]
    for name in ("signer", "l3")
)


def _judge(given: dict[str, Any]) -> dict[str, object]:
    if "ocsp" in given:
        nonce = None if given["nonce"] is None else bytes.fromhex(given["nonce"])
        answer = base64.b64decode(given["ocsp"])
        grace = timedelta(seconds=given.get("grace_s", 0))
        made = verify_ocsp(answer, subject=_SIGNER, issuer=_L3, at=_AT, nonce=nonce, grace=grace)
        return {"code": None} | ({"is_late": made.is_late} if grace else {})
    document = generate.restored(given["rim"], _GOOD)
    rim = verify_rim(document.encode(), anchors=anchors(), at=_AT)
    active = [entry.index for entry in rim.active]
    return {
        "code": None,
        "kind": rim.kind,
        "product": rim.product,
        "version": rim.version,
        "active": active,
    }


def test_the_generator_makes_exactly_these_files() -> None:
    made = {name: generate.render(document) for name, document in generate.vectors()}

    assert len(made) == 1 + len(rim_cases.CASES) + len(ocsp_cases.CASES)
    assert made == {path.name: path.read_text() for path in _FILES}


@pytest.mark.parametrize(
    "path", [path for path in _FILES if path.name != generate.PKI_FILE], ids=lambda path: path.stem
)
def test_vector(path: Path) -> None:
    vector = json.loads(path.read_text())

    try:
        got = _judge(vector["input"])
    except AttestationError as err:
        got = {"code": err.code}

    assert got == vector["expect"]

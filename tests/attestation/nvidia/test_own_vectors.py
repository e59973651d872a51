"""The checked-in NVIDIA device vectors: still what the generator makes, judged as they say."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from attestation.anchors import Anchor, TrustAnchors
from attestation.checks import CheckLog
from attestation.errors import AttestationError
from attestation.nvidia.verifier import verify_device
from tests.vectors.nvidia import generate

_FILES = sorted(generate.FOLDER.glob("*.json"))


def test_the_generator_makes_exactly_these_files() -> None:
    made = {name: generate.render(document) for name, document in generate.vectors()}

    assert made == {path.name: path.read_text() for path in _FILES}


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_vector(path: Path) -> None:
    """Exactly one check fails, the last one that was reached."""
    vector = json.loads(path.read_text())
    good = _input(vector["input"].get("base", path.name))
    evidence = generate.apply(good, vector["input"].get("replace", {}))
    log, code = CheckLog(), None

    try:
        verify_device(
            evidence.report,
            b"".join(evidence.chain),
            anchors=_anchors(good["root_sha256"]),
            nonce=evidence.nonce,
            at=datetime.fromisoformat(good["verify_at"]),
            log=log,
            arch=evidence.arch,
        )
    except AttestationError as err:
        code = err.code

    assert code == vector["expect"]["code"]
    outcomes = [check.outcome for check in log.checks]
    assert outcomes[:-1] == ["pass"] * (len(outcomes) - 1)
    assert outcomes[-1] == ("pass" if code is None else "fail")


def _input(name: str) -> dict[str, Any]:
    inputs: dict[str, Any] = json.loads((generate.FOLDER / name).read_text())["input"]
    return inputs


def _anchors(sha256: str) -> TrustAnchors:
    anchor = Anchor(
        name="test", kind="vendor", family="nvidia-device", sha256=sha256, source="tests"
    )
    return TrustAnchors(anchors=(anchor,))

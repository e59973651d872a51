"""The checked-in TDX vectors: still what the generator makes, still judged as they say."""

import json
from datetime import datetime
from typing import Any

import pytest

from attestation.anchors import load_anchors
from attestation.appraise import appraise
from attestation.errors import AttestationError
from attestation.model import parse_bundle, parse_nonce
from attestation.policy import load_policy
from tests.vectors.tdx import generate

_FILES = sorted(generate.FOLDER.glob("*.json"))
_GOOD: dict[str, Any] = json.loads((generate.FOLDER / generate.GOOD_FILE).read_text())


def test_the_generator_makes_exactly_these_files() -> None:
    made = {name: generate.render(document) for name, document in generate.vectors()}

    assert made == {path.name: path.read_text() for path in _FILES}


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_vector(path: Any) -> None:
    vector, inputs = json.loads(path.read_text()), _GOOD["input"]
    bundle = generate.apply(inputs["bundle"], vector["input"].get("replace", {}))

    try:
        result = appraise(
            parse_bundle(json.dumps(bundle).encode()),
            nonce=parse_nonce(inputs["nonce"]),
            policy=load_policy(inputs["policy"]),
            anchors=load_anchors(),
            at=datetime.fromisoformat(inputs["verify_at"]),
        )
    except AttestationError as err:
        pytest.fail(f"the bundle could not be read: {err.code}")

    assert result.code == vector["expect"]["code"]
    assert result.tier == vector["expect"].get("tier", result.tier)

"""The checked-in Nitro vectors: still what the generator makes, still judged as they say."""

import base64
import json
from datetime import datetime
from typing import Any

import pytest

from tests.attestation.nitro.judging import failures
from tests.vectors.nitro import generate

_FILES = sorted(generate.FOLDER.glob("*.json"))
_GOOD: dict[str, Any] = json.loads((generate.FOLDER / generate.GOOD_FILE).read_text())


def test_the_generator_makes_exactly_these_files() -> None:
    made = {name: generate.render(document) for name, document in generate.vectors()}

    assert made == {path.name: path.read_text() for path in _FILES}


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_vector(path: Any) -> None:
    vector = json.loads(path.read_text())
    inputs = {**_GOOD["input"], **vector["input"].get("replace", {})}

    got = failures(
        base64.b64decode(inputs["document_b64"]),
        policy=inputs["policy"],
        at=datetime.fromisoformat(inputs["verify_at"]),
    )

    expect = vector["expect"]
    assert got == ([] if expect["code"] is None else [(expect["check"], expect["code"])])

"""The checked-in SNP vectors: still what the generator makes, still judged as they say."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.attestation.snp.samples import ANCHORS, failures
from tests.vectors.snp import generate

_FILES = sorted(generate.FOLDER.glob("*.json"))
_GOOD: dict[str, Any] = json.loads((generate.FOLDER / generate.GOOD_FILE).read_text())["input"]


def test_the_generator_makes_exactly_these_files() -> None:
    made = {name: generate.render(document) for name, document in generate.vectors()}

    assert made == {path.name: path.read_text() for path in _FILES}


def test_the_roots_are_those_that_the_base_names() -> None:
    assert [anchor.sha256 for anchor in ANCHORS.anchors] == _GOOD["roots_sha256"]


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_vector(path: Path) -> None:
    vector = json.loads(path.read_text())
    given = generate.read(vector["input"].get("replace", {}), _GOOD)
    code = vector["expect"]["code"]

    assert failures(given) == ([] if code is None else [code])

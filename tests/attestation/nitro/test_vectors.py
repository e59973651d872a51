"""The published Nitro cases hold, and their root is the one that ships."""

from attestation.anchors import load_anchors
from attestation.vectors import run_vectors
from attestation.x509 import KeyKind, parse_chain
from tests.support.resources import vectors_dir

_NUM_CASES = 18
_P384: frozenset[KeyKind] = frozenset({"p384"})


def test_published_cases() -> None:
    results = list(run_vectors(vectors_dir() / "attestation" / "nitro"))

    assert {result.case_id: result.problem for result in results if result.problem} == {}
    assert len(results) == _NUM_CASES
    assert sum(result.outcome.verdict == "accept" for result in results) == 1


def test_the_pinned_root_is_amazons() -> None:
    pem = vectors_dir() / "attestation" / "nitro" / "anchors" / "aws-nitro-root-g1.pem"
    (root,) = parse_chain(pem.read_bytes(), what="root", key_kinds=_P384)

    anchor = load_anchors().find("aws-nitro", root.sha256)

    assert anchor is not None
    assert anchor.kind == "vendor"

"""The published TDX and SGX vectors, each at its own time, give their verdict and class."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from attestation.anchors import Anchor, TrustAnchors, load_anchors
from attestation.appraise import appraise_quote, reject_unread
from attestation.errors import AttestationError
from attestation.model import AttestationResult
from attestation.policy import AppraisalPolicy, load_policy
from attestation.tdx.endorsements import TdxCollateral, parse_collateral
from attestation.tdx.rules import TeeTypeAllowed
from tests.support.resources import vectors_dir

_FILES = ("tdx/manifest.json", "tdx/negative.json", "tdx-synthetic/negative.json")
_UNSUPPORTED: dict[str, str] = {}  # case id -> why it cannot be judged yet
_NUM_CASES = 125


def _cases() -> Iterator[tuple[Path, dict[str, Any]]]:
    base = vectors_dir() / "attestation"
    for name in _FILES:
        for case in json.loads((base / name).read_text())["cases"]:
            yield (base / name).parent, case


def _policy() -> AppraisalPolicy:
    """Production, for both of Intel's TEEs: the vectors' policy "default"."""
    policy = load_policy("production")
    both = TeeTypeAllowed(allowed=frozenset({"tdx", "sgx"}))
    rules = tuple(both if isinstance(rule, TeeTypeAllowed) else rule for rule in policy.rules)
    return replace(policy, rules=rules)


def _anchors(folder: Path, root: str) -> TrustAnchors:
    if root == "intel":
        return load_anchors()
    digest = hashlib.sha256((folder / root).read_bytes()).hexdigest()
    return TrustAnchors(
        anchors=(Anchor(name="test", kind="vendor", family="dcap", sha256=digest, source=root),)
    )


def _collateral(folder: Path, inputs: dict[str, Any]) -> TdxCollateral:
    collateral = parse_collateral((folder / inputs["collateral"]).read_bytes())
    for key, file in inputs.get("override", {}).items():
        name = key.removesuffix("_from")
        other = parse_collateral((folder / file).read_bytes())
        members = (name, f"{name}_signature", f"{name}_issuer_chain")
        collateral = replace(collateral, **{member: getattr(other, member) for member in members})
    return collateral


def _judge(folder: Path, case: dict[str, Any]) -> AttestationResult:
    inputs, policy = case["inputs"], _policy()
    at = datetime.fromisoformat(case["verify_at"])
    quote = (folder / inputs["quote"]).read_bytes()
    try:
        collateral = _collateral(folder, inputs)
    except AttestationError as err:
        return reject_unread(err, quote, policy=policy, at=at)
    anchors = _anchors(folder, inputs.get("root", "intel"))
    return appraise_quote(quote, collateral, policy=policy, anchors=anchors, at=at)


def _problem(case: dict[str, Any], result: AttestationResult) -> str | None:
    expected = case["expected"]
    verdict = "accept" if result.is_accepted else "reject"
    allowed = expected.get("any_of") or [expected.get("error_class")]
    if verdict != expected["verdict"] and "accepted" not in "".join(filter(None, allowed)):
        return f"{verdict} ({result.code}), want {expected}"
    if verdict == "reject" and result.code not in allowed:
        return f"{result.code}, want one of {allowed}"
    for claim, member in (("tcb_status", "tcb_status"), ("advisories", "advisories")):
        want = expected.get(member)
        got = result.claims.get(claim)
        if want is not None and (list(got) if isinstance(got, tuple) else got) != want:
            return f"{claim} {got}, want {want}"
    return None


@pytest.mark.parametrize("file", _FILES)
def test_published_vectors(file: str) -> None:
    folder = (vectors_dir() / "attestation" / file).parent
    cases = json.loads((vectors_dir() / "attestation" / file).read_text())["cases"]
    judged = [case for case in cases if case["id"] not in _UNSUPPORTED]

    problems = {case["id"]: _problem(case, _judge(folder, case)) for case in judged}

    assert {name: problem for name, problem in problems.items() if problem} == {}


def test_nothing_is_left_out_unsaid() -> None:
    ids = [case["id"] for _, case in _cases()]

    assert len(ids) == _NUM_CASES
    assert set(ids) >= _UNSUPPORTED.keys()


def test_synthetic_cases_reach_their_tcb_status() -> None:
    """The merged status on the way to the verdict is the reference's, not only the rejection."""
    for folder, case in _cases():
        reference = case.get("reference_appraisal") or {}
        result = _judge(folder, case)
        if reference.get("status") and "tcb_status" in result.claims:
            assert result.claims["tcb_status"] == reference["status"], case["id"]
            assert result.claims["advisories"] == tuple(reference["advisories"]), case["id"]

"""What do we make of one published TDX or SGX case?  Its quote under the case's root and time."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from attestation.anchors import Anchor, TrustAnchors, load_anchors
from attestation.appraise import appraise_quote
from attestation.errors import AttestationError
from attestation.policy import AppraisalPolicy, load_policy
from attestation.tdx.endorsements import TdxCollateral, parse_collateral
from attestation.vectors import CaseOutcome, read_input


def run_case(
    inputs: Mapping[str, Any], case: Mapping[str, Any], folder: Path, *, at: datetime
) -> CaseOutcome:
    """Policy "default" is production's, for both of Intel's TEEs."""
    quote = read_input(folder, inputs["quote"])
    try:
        collateral = _collateral(folder, inputs)
    except AttestationError as err:
        return CaseOutcome(verdict="reject", code=err.code)
    result = appraise_quote(
        quote,
        collateral,
        policy=_default_policy(),
        anchors=_anchors(folder, inputs.get("root", "intel")),
        at=at,
    )
    reported = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in result.claims.items()
        if name in ("tcb_status", "advisories")
    }
    return CaseOutcome(
        verdict="accept" if result.is_accepted else "reject", code=result.code, reported=reported
    )


def _default_policy() -> AppraisalPolicy:
    return replace(load_policy("production"), cpu=frozenset({"tdx", "sgx"}))


def _anchors(folder: Path, root: str) -> TrustAnchors:
    if root == "intel":
        return load_anchors()
    digest = hashlib.sha256(read_input(folder, root)).hexdigest()
    anchor = Anchor(name="test", kind="vendor", family="dcap", sha256=digest, source=root)
    return TrustAnchors(anchors=(anchor,))


def _collateral(folder: Path, inputs: Mapping[str, Any]) -> TdxCollateral:
    """The case's collateral; ``override`` takes an object with signature and chain from another."""
    collateral = parse_collateral(read_input(folder, inputs["collateral"]))
    for key, file in inputs.get("override", {}).items():
        name = key.removesuffix("_from")
        other = parse_collateral(read_input(folder, file))
        members = (name, f"{name}_signature", f"{name}_issuer_chain")
        collateral = replace(collateral, **{member: getattr(other, member) for member in members})
    return collateral

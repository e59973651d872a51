"""Does one published SNP case hold?  The runner of the vector folder ``snp``."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from attestation.anchors import load_anchors
from attestation.checks import CheckLog
from attestation.errors import AttestationError
from attestation.rules import Rule
from attestation.snp.azure import parse_hcl, require_runtime
from attestation.snp.endorsements import SnpEndorsements
from attestation.snp.product import PRODUCTS
from attestation.snp.rules import (
    DebugOff,
    GuestPolicySound,
    ProductAllowed,
    RevocationChecked,
    VmplAllowed,
)
from attestation.snp.verifier import SnpClaims, SnpVerifier
from attestation.vectors import CaseOutcome, read_input

# The schema's default asks for VMPL 0, yet its real AWS case is accepted at VMPL 1.
_MAX_VMPL = 1
_DEFAULT: tuple[Rule[SnpClaims], ...] = (
    ProductAllowed(allowed=frozenset(PRODUCTS)),
    DebugOff(),
    GuestPolicySound(required=frozenset(), refused=frozenset({"migration"})),
    VmplAllowed(maximum=_MAX_VMPL),
)
_POLICIES = {"default": _DEFAULT, "require fresh CRL": (*_DEFAULT, RevocationChecked())}


def run_case(
    inputs: Mapping[str, Any], case: Mapping[str, Any], folder: Path, *, at: datetime
) -> CaseOutcome:
    """The verdict on one case, its files below ``folder``.

    Raises: KeyError: a policy that the schema does not have.
    """
    rules = _POLICIES[case.get("policy", "default")]
    reported: dict[str, object] = {}
    try:
        claims = _verify(inputs, folder, at)
        reported["product"] = claims.product.name.lower()
        for rule in rules:
            rule.require(claims)
    except AttestationError as err:
        return CaseOutcome(verdict="reject", code=err.code, reported=reported)
    return CaseOutcome(verdict="accept", reported=reported)


def _verify(inputs: Mapping[str, Any], folder: Path, at: datetime) -> SnpClaims:
    endorsements = SnpEndorsements(
        vek=read_input(folder, inputs["endorsement"]),
        chain=read_input(folder, inputs["chain"]),
        crl=read_input(folder, inputs["crl"]) if "crl" in inputs else None,
    )
    verifier = SnpVerifier(anchors=load_anchors())
    if "hcl" not in inputs:
        report = read_input(folder, inputs["report"])
        return verifier.verify(report, endorsements, at=at, log=CheckLog())
    hcl = parse_hcl(read_input(folder, inputs["hcl"]))
    claims = verifier.verify(hcl.report, endorsements, at=at, log=CheckLog())
    require_runtime(hcl, claims.report_data)
    return claims

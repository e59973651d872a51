"""What do we make of one published Nitro case?  Its document under the case's root and time."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from attestation.anchors import Anchor, TrustAnchors, load_anchors
from attestation.checks import CheckLog
from attestation.errors import AttestationError
from attestation.nitro.rules import DebugOff
from attestation.nitro.verifier import NitroVerifier
from attestation.vectors import CaseOutcome, read_input
from attestation.x509 import KeyKind, parse_chain

_P384: frozenset[KeyKind] = frozenset({"p384"})


def run_case(
    inputs: Mapping[str, Any], case: Mapping[str, Any], folder: Path, *, at: datetime
) -> CaseOutcome:
    """Policy "default": debug off, and no reference values for the PCRs."""
    data = read_input(folder, inputs["doc"])
    verifier = NitroVerifier(anchors=_anchors(folder, inputs.get("root")))
    try:
        DebugOff().require(verifier.verify(data, at=at, log=CheckLog()))
    except AttestationError as err:
        return CaseOutcome(verdict="reject", code=err.code)
    return CaseOutcome(verdict="accept")


def _anchors(folder: Path, root: str | None) -> TrustAnchors:
    """The root that the case trusts: one PEM certificate, or the pinned one."""
    if root is None:
        return load_anchors()
    certificates = parse_chain(read_input(folder, root), what=root, key_kinds=_P384)
    digests = [certificate.sha256 for certificate in certificates]
    return TrustAnchors(
        anchors=tuple(
            Anchor(name="test", kind="vendor", family="aws-nitro", sha256=digest, source=root)
            for digest in digests
        )
    )

"""What do we make of one published NRAS case?  Its bundle under the case's JWKS, nonce and time."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from attestation.checks import CheckLog
from attestation.errors import AttestationError
from attestation.model import parse_nonce
from attestation.nras.jwks import parse_jwks
from attestation.nras.rules import NoWarning
from attestation.nras.token import verify_nras
from attestation.vectors import CaseOutcome, read_input


def run_case(
    inputs: Mapping[str, Any], case: Mapping[str, Any], folder: Path, *, at: datetime
) -> CaseOutcome:
    """Policy "default": no warnings, and no reference values for the devices."""
    try:
        claims = verify_nras(
            read_input(folder, inputs["eat"]),
            parse_jwks(read_input(folder, inputs["jwks"])),
            nonce=parse_nonce(inputs["nonce"]),
            at=at,
            log=CheckLog(),
        )
        NoWarning().require(claims)
    except AttestationError as err:
        return CaseOutcome(verdict="reject", code=err.code)
    return CaseOutcome(verdict="accept")

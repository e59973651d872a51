"""What do we make of one published NVIDIA case: a report, its measurements, an OCSP answer?"""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from attestation.anchors import load_anchors
from attestation.checks import CheckLog
from attestation.errors import AttestationError
from attestation.nvidia.measurements import MeasurementMismatch, VerifiedRims, require_match
from attestation.nvidia.ocsp import verify_ocsp
from attestation.nvidia.rim import VerifiedRim, verify_rim
from attestation.nvidia.verifier import verify_device
from attestation.vectors import CaseOutcome, read_input
from attestation.x509 import Certificate, KeyKind, parse_chain

_KEY_KINDS: frozenset[KeyKind] = frozenset({"p384"})
_UNASKED_NONCE = bytes(32)  # a nonce that no recorded answer can carry


def run_case(
    inputs: Mapping[str, Any], case: Mapping[str, Any], folder: Path, *, at: datetime
) -> CaseOutcome:
    """The outcome of one case, at its own time, under the roots that ship with the package."""
    reported: dict[str, object] = {}
    try:
        if "ocsp" in inputs:
            _run_ocsp(inputs, case, folder, at, reported)
        else:
            _run_report(inputs, folder, at)
    except MeasurementMismatch as err:
        reported["mismatched"] = [[m.index, m.source] for m in err.mismatches]
        return CaseOutcome(verdict="reject", code=err.code, reported=reported)
    except AttestationError as err:
        return CaseOutcome(verdict="reject", code=err.code, reported=reported)
    return CaseOutcome(verdict="accept", reported=reported)


def _run_ocsp(
    inputs: Mapping[str, Any],
    case: Mapping[str, Any],
    folder: Path,
    at: datetime,
    reported: dict[str, object],
) -> None:
    subject, issuer = (
        _certificate(read_input(folder, inputs[name])) for name in ("subject", "issuer")
    )
    is_nonce_required = case.get("policy") == "nonce required"
    verified = verify_ocsp(
        read_input(folder, inputs["ocsp"]),
        subject=subject,
        issuer=issuer,
        at=at,
        nonce=_UNASKED_NONCE if is_nonce_required else None,
    )
    reported["status"] = verified.status


def _run_report(inputs: Mapping[str, Any], folder: Path, at: datetime) -> None:
    """RIMs come with their own verification; a case may give the VBIOS part alone.

    The switch's case is older than the signature on the one RIM that there is for it.
    """
    anchors, log = load_anchors(), CheckLog()
    device = verify_device(
        read_input(folder, inputs["report"]),
        read_input(folder, inputs["chain"]),
        anchors=anchors,
        nonce=bytes.fromhex(inputs["nonce"]),
        at=at,
        log=log,
        arch=inputs.get("arch"),
    )
    if "vbios_rim" not in inputs:
        return

    def rim(name: str) -> VerifiedRim | None:
        file = inputs[name]
        if file is None:
            return None
        xml = read_input(folder, file)
        return verify_rim(xml, anchors=anchors, at=at, may_be_signed_later=True)

    rims = VerifiedRims(driver=rim("driver_rim"), firmware=rim("vbios_rim"))
    require_match(device.identity, device.report, rims)


def _certificate(data: bytes) -> Certificate:
    (certificate,) = parse_chain(data, what="OCSP case", key_kinds=_KEY_KINDS)
    return certificate

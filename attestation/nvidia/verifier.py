"""NVIDIA devices: is this report genuine, fresh and of a known device?  [DSP0274, NVIDIA RIM]

One call judges one GPU or switch, and keeps nothing for the next but a chain, in the cache that it
is given. Whether what a device claims is good enough, and whether devices fit together, is asked of
the claims: ``rules.py``, ``topology.py``.
"""

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from attestation.anchors import Anchor, TrustAnchors
from attestation.cache import VerifiedCache
from attestation.checks import CheckLog
from attestation.errors import BadSignature, MalformedEvidence, PolicyViolation, StaleEvidence
from attestation.model import GpuEntry
from attestation.nvidia.chain import DeviceIdentity, GpuArch, require_fwid, verify_device_chain
from attestation.nvidia.measurements import (
    MatchedMeasurements,
    VerifiedRims,
    require_complete,
    require_match,
)
from attestation.nvidia.ocsp import NO_GRACE, VerifiedOcsp, verify_chain_ocsp
from attestation.nvidia.report import NONCE_BYTES, SIGNATURE_BYTES, DeviceReport, parse_report

GpuMode = Literal["spt", "mpt", "ppcie", "unstated"]
_HALF = SIGNATURE_BYTES // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class OcspAnswers:
    """Answers for the chain's certificates 1 to 3 in order, and the nonces asked with, or None."""

    answers: tuple[bytes, ...]
    nonces: tuple[bytes | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedDevice:
    """Made by ``verify_device`` alone: a signed, fresh report and the device that made it."""

    identity: DeviceIdentity
    report: DeviceReport


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuClaims:
    """What one genuine device claims; made by ``GpuVerifier`` alone.

    ``measurements`` and ``revocation`` are None when nothing was given to compare with: only a
    policy that says so accepts that. ``mode`` is None for a switch.
    """

    identity: DeviceIdentity
    report: DeviceReport
    mode: GpuMode | None
    measurements: MatchedMeasurements | None
    revocation: tuple[VerifiedOcsp, ...] | None
    verified_at: datetime
    not_after: datetime

    @property
    def arch(self) -> GpuArch:
        """As its certificates say."""
        return self.identity.arch

    @property
    def late_since(self) -> datetime | None:
        """When the first of its OCSP answers ended that were taken late; None: all are current."""
        ends = [answer.next_update for answer in self.revocation or () if answer.is_late]
        return min(ends, default=None)

    @property
    def anchors(self) -> tuple[Anchor, ...]:
        """The roots that its chain and its reference values end in, its own first."""
        matched = () if self.measurements is None else self.measurements.anchors
        return (self.identity.anchor, *matched)


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuVerifier:
    """Verifies reports of GPUs and NVSwitches against pinned roots.

    OCSP answers that ended less than ``ocsp_grace`` ago are taken as late, which the claims say.
    With a ``cache``, a device's chain that it has seen verified is not verified again; every other
    step runs on every call, with the same outcome.
    """

    anchors: TrustAnchors
    cache: VerifiedCache | None = None
    ocsp_grace: timedelta = NO_GRACE

    def verify(
        self,
        entry: GpuEntry,
        *,
        nonce: bytes,
        at: datetime,
        log: CheckLog,
        rims: VerifiedRims | None,
        ocsp: OcspAnswers | None = None,
        label: str = "gpu",
    ) -> GpuClaims:
        """Claims of one genuine device; ``log`` receives one entry a step, named by ``label``.

        ``nonce`` is the one the RelyingParty derived, 32 bytes, never one read from Evidence.

        Raises: AttestationError: the code of the step that failed.
        """
        device = verify_device(  # 1 to 5
            entry.report,
            entry.cert_chain,
            anchors=self.anchors,
            nonce=nonce,
            at=at,
            log=log,
            arch=entry.arch,
            label=label,
            cache=self.cache,
        )
        identity, report = device.identity, device.report
        measurements, revocation = None, None
        if rims is None:
            log.not_applicable(f"{label}_measurements", "no reference values were given")
        else:
            with log.step(f"{label}_measurements", "every measurement is its reference value"):  # 6
                require_complete(rims, identity)
                measurements = require_match(identity, report, rims)
        if ocsp is None:
            log.not_applicable(f"{label}_revocation", "no OCSP answers were given")
        else:
            with log.step(f"{label}_revocation", "none of its certificates is revoked"):  # 7
                revocation = verify_chain_ocsp(
                    identity.chain,
                    ocsp.answers,
                    at=at,
                    nonces=ocsp.nonces,
                    grace=self.ocsp_grace,
                )
        ends = [identity.chain.not_after, *(answer.not_after for answer in revocation or ())]
        if measurements is not None:
            ends.append(measurements.not_after)
        return GpuClaims(
            identity=identity,
            report=report,
            mode=device_mode(report),
            measurements=measurements,
            revocation=revocation,
            verified_at=at,
            not_after=min(ends),
        )


def verify_device(
    report_bytes: bytes,
    cert_chain: bytes,
    *,
    anchors: TrustAnchors,
    nonce: bytes,
    at: datetime,
    log: CheckLog,
    arch: str | None,
    label: str = "gpu",
    cache: VerifiedCache | None = None,
) -> VerifiedDevice:
    """Report and chain alone; ``arch`` is the architecture expected, None for any.

    Steps: 1. chain; 2. format; 3. nonce; 4. signature; 5. firmware id.

    Raises: AttestationError: the code of the step that failed.
    """
    with log.step(f"{label}_chain", "the device's certificate chain ends in a pinned root"):  # 1
        identity = verify_device_chain(cert_chain, anchors=anchors, at=at, cache=cache)
        if arch is not None and arch != identity.arch:
            raise PolicyViolation("gpu_arch", f"device is {identity.arch}, want {arch}")
    with log.step(f"{label}_format", "the report follows its format"):  # 2
        report = parse_report(report_bytes, identity.kind)
        device_mode(report)
    with log.step(f"{label}_nonce", "the report answers our nonce"):  # 3
        _require_nonce(report, nonce)
    with log.step(f"{label}_signature", "the report is signed by the device"):  # 4
        _verify_signature(identity, report)
    with log.step(f"{label}_fwid", "the report's firmware is its certificate's, if it names one"):
        require_fwid(identity, report.opaque.fwid)  # 5
    return VerifiedDevice(identity=identity, report=report)


def device_mode(report: DeviceReport) -> GpuMode | None:
    """How the GPU is passed to its guest; old firmware says at most whether PCIe is protected.

    Raises: MalformedEvidence("format"): the report contradicts itself.
    """
    if report.kind == "switch":
        return None
    feature, is_protected = report.opaque.feature, report.opaque.is_protected_pcie
    if feature is None:
        return "ppcie" if is_protected else "unstated"
    if is_protected is not None and is_protected != (feature == "ppcie"):
        raise MalformedEvidence("format", f"report: protected PCIe and feature {feature} disagree")
    return feature


def _require_nonce(report: DeviceReport, nonce: bytes) -> None:
    if len(nonce) != NONCE_BYTES:
        raise MalformedEvidence("nonce_length", f"nonce: {len(nonce)} bytes, want {NONCE_BYTES}")
    if not hmac.compare_digest(nonce, report.request_nonce):
        raise StaleEvidence("nonce_mismatch", "the report answers another nonce")


def _verify_signature(identity: DeviceIdentity, report: DeviceReport) -> None:
    r, s = (int.from_bytes(half, "big") for half in _halves(report.signature))
    try:
        identity.chain.leaf.ec_key.verify(
            encode_dss_signature(r, s), report.signed_bytes, ec.ECDSA(hashes.SHA384())
        )
    except InvalidSignature as err:
        raise BadSignature("report_signature", "the report is not signed by this device") from err


def _halves(signature: bytes) -> Sequence[bytes]:
    return signature[:_HALF], signature[_HALF:]

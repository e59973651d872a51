"""Verified claims and reference values of test devices, to change one thing at a time."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import ocsp
from cryptography.x509.oid import ExtendedKeyUsageOID

from attestation.checks import CheckLog
from attestation.model import GpuEntry
from attestation.nvidia.chain import verify_device_chain
from attestation.nvidia.measurements import VerifiedRims
from attestation.nvidia.rim import RimEntry, RimKind, VerifiedRim
from attestation.nvidia.verifier import GpuClaims, GpuVerifier, OcspAnswers
from tests.attestation.nvidia.device import AT, NONCE, FakeDevice, pem, tlv

ARCHS = {"GH100": "HOPPER", "GB100": "BLACKWELL", "LS_10": "LS10"}
NUM_DRIVER_ENTRIES = 21
HOUR = timedelta(hours=1)


def claims(
    device: FakeDevice,
    *,
    rims: VerifiedRims | None = None,
    answers: OcspAnswers | None = None,
    log: CheckLog | None = None,
    ocsp_grace: timedelta = timedelta(0),
) -> GpuClaims:
    """What GpuVerifier makes of this device's good Evidence."""
    entry = GpuEntry(
        arch=ARCHS[device.chip],
        cert_chain=pem(device.certificates()),
        report=device.report(),
    )
    return GpuVerifier(anchors=device.pki.anchors, ocsp_grace=ocsp_grace).verify(
        entry, nonce=NONCE, at=AT, log=log or CheckLog(), rims=rims, ocsp=answers
    )


def rim(
    device: FakeDevice,
    kind: RimKind,
    indexes: range,
    *,
    version: str,
    changed: Mapping[int, RimEntry] | None = None,
) -> VerifiedRim:
    """Reference values for these indexes, as the device measures them."""
    entries = {index: entry(index, device.measurements[index]) for index in indexes}
    identity = verify_device_chain(pem(device.certificates()), anchors=device.pki.anchors, at=AT)
    return VerifiedRim(
        kind=kind,
        product=identity.chip,
        version=version,
        entries={**entries, **(changed or {})},
        chain=identity.chain,
        sha256="00" * 32,
    )


def entry(index: int, *alternatives: bytes, active: bool = True, size_bytes: int = 48) -> RimEntry:
    """One reference value."""
    return RimEntry(
        index=index,
        active=active,
        alternatives=alternatives,
        size_bytes=size_bytes,
        name=f"index {index}",
    )


def gpu_rims(device: FakeDevice, changed: Mapping[int, RimEntry] | None = None) -> VerifiedRims:
    """Driver and VBIOS RIM of a GPU; ``changed`` goes into the one that its index belongs to."""
    changed = changed or {}
    split = NUM_DRIVER_ENTRIES
    return VerifiedRims(
        driver=rim(
            device,
            "driver",
            range(split),
            version="590.12",
            changed={index: value for index, value in changed.items() if index < split},
        ),
        firmware=rim(
            device,
            "vbios",
            range(split, split + 12),
            version="96.00.A5.00.01",
            changed={index: value for index, value in changed.items() if index >= split},
        ),
    )


def switch_rims(device: FakeDevice) -> VerifiedRims:
    """BIOS RIM of a switch."""
    bios = rim(device, "switch", range(31), version="96.10.55.00.01")
    return VerifiedRims(driver=None, firmware=bios)


def ocsp_answers(
    device: FakeDevice,
    *,
    this_update: datetime = AT - HOUR,
    next_update: datetime = AT + HOUR,
    revoked_index: int | None = None,
    reason: x509.ReasonFlags = x509.ReasonFlags.key_compromise,
) -> OcspAnswers:
    """Answers by delegated responders on certificates 1 to 3, good unless one is revoked."""
    chain = device.certificates()
    answers = tuple(
        ocsp_answer(
            device,
            chain[i],
            chain[i + 1],
            this_update=this_update,
            next_update=next_update,
            reason=reason if i == revoked_index else None,
        )
        for i in (1, 2, 3)
    )
    return OcspAnswers(answers=answers, nonces=(None,) * len(answers))


def ocsp_answer(
    device: FakeDevice,
    subject: x509.Certificate,
    issuer: x509.Certificate,
    *,
    this_update: datetime = AT - HOUR,
    next_update: datetime = AT + HOUR,
    reason: x509.ReasonFlags | None = None,
) -> bytes:
    """An answer by a delegated responder of ``issuer``, "good" without a ``reason``."""
    issuer_name = issuer.subject.rdns[0].rfc4514_string().removeprefix("CN=")
    responder = device.pki.issue(
        f"{issuer_name} OCSP",
        issuer_name,
        is_ca=False,
        extensions=(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.OCSP_SIGNING]),),
    )
    status = ocsp.OCSPCertStatus.GOOD if reason is None else ocsp.OCSPCertStatus.REVOKED
    answer = (
        ocsp.OCSPResponseBuilder()
        .add_response(
            cert=subject,
            issuer=issuer,
            algorithm=hashes.SHA384(),
            cert_status=status,
            this_update=this_update,
            next_update=next_update,
            revocation_time=None if reason is None else this_update,
            revocation_reason=reason,
        )
        .responder_id(ocsp.OCSPResponderEncoding.HASH, responder)
        .certificates([responder])
        .sign(device.pki.key(f"{issuer_name} OCSP"), hashes.SHA384())
    )
    return _produced(answer, this_update, device.pki.key(f"{issuer_name} OCSP"), responder)


def _produced(
    made: ocsp.OCSPResponse,
    moment: datetime,
    key: ec.EllipticCurvePrivateKey,
    responder: x509.Certificate,
) -> bytes:
    """The answer as if produced at ``moment``: the library says now."""
    now, then = (f"{at:%Y%m%d%H%M%SZ}".encode() for at in (made.produced_at_utc, moment))
    assert made.tbs_response_bytes.count(now) == 1
    tbs = made.tbs_response_bytes.replace(now, then)
    algorithm = tlv(0x30, bytes.fromhex("06082a8648ce3d040303"))
    signature = tlv(0x03, b"\0" + key.sign(tbs, ec.ECDSA(hashes.SHA384())))
    sent = tlv(0xA0, tlv(0x30, responder.public_bytes(Encoding.DER)))
    basic = tlv(0x30, tbs + algorithm + signature + sent)
    body = bytes.fromhex("06092b0601050507300101") + tlv(0x04, basic)
    return tlv(0x30, bytes.fromhex("0a0100") + tlv(0xA0, tlv(0x30, body)))

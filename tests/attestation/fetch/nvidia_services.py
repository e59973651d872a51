"""NVIDIA's RIM service and OCSP responder for test devices, under roots of our own."""

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import ocsp
from cryptography.x509.oid import ExtendedKeyUsageOID

from attestation.anchors import TrustAnchors
from attestation.model import GpuEntry
from tests.attestation.fetch.service import Call, Reply
from tests.attestation.nvidia.claims import ARCHS, HOUR, _produced
from tests.attestation.nvidia.device import AT, DevicePki, FakeDevice, pem
from tests.vectors.nvidia_refs import pki, rim_documents

ANCHORS = TrustAnchors(anchors=(*DevicePki().anchors.anchors, *pki.anchors().anchors))
DRIVER_ID = "NV_GPU_DRIVER_GH100_590.12"
VBIOS_ID = "NV_GPU_VBIOS_G520_0200_885_9600A50001"
SWITCH_ID = "NV_SWITCH_BIOS_5612_0002_890_9610550001"
BLACKWELL_VBIOS_ID = "NV_GPU_VBIOS_G530_0200_885_9600A50001"
BLACKWELL_ID = "NV_GPU_CC_DRIVER_GB100_590.12"


def entry(device: FakeDevice) -> GpuEntry:
    """The device's Evidence as it travels."""
    return GpuEntry(
        arch=ARCHS[device.chip], cert_chain=pem(device.certificates()), report=device.report()
    )


def rim_answer(rim_id: str, *, id_said: str = "", **facts: str) -> Reply:
    """The RIM service's answer with a RIM of these facts."""
    rim = pki.sign(rim_documents.document(**facts)).encode()  # type: ignore[arg-type]
    document = {
        "id": id_said or rim_id,
        "rim": base64.b64encode(rim).decode(),
        "sha256": hashlib.sha256(rim).hexdigest(),
    }
    return Reply(content=json.dumps(document).encode())


def rim_routes() -> dict[str, Reply]:
    """The RIMs that the test devices run."""
    facts: Mapping[str, dict[str, str]] = {
        DRIVER_ID: {"version": "590.12"},
        VBIOS_ID: {"version": "96.00.A5.00.01"},
        SWITCH_ID: {"version": "96.10.55.00.01", "edition": "SWITCH", "product": "LS10"},
        BLACKWELL_ID: {"version": "590.12", "product": "GB100"},
        BLACKWELL_VBIOS_ID: {"version": "96.00.A5.00.01", "product": "GB100"},
    }
    return {f"/v1/rim/{rim_id}": rim_answer(rim_id, **known) for rim_id, known in facts.items()}


@dataclass(kw_only=True)
class OcspResponder:
    """Answers about the certificates of these devices; each flag is one way to be wrong."""

    devices: tuple[FakeDevice, ...]
    this_update: datetime = AT - HOUR
    lifetime: timedelta = timedelta(hours=23)
    echoes_nonce: bool = True
    other_nonce: bool = False
    status: ocsp.OCSPCertStatus = ocsp.OCSPCertStatus.GOOD
    nonces: list[bytes] = field(default_factory=list)

    def __call__(self, call: Call) -> Reply:
        request = ocsp.load_der_ocsp_request(call.body)
        assert call.headers["content-type"] == "application/ocsp-request"
        assert isinstance(request.hash_algorithm, hashes.SHA384)
        (nonce,) = (
            e.value.nonce for e in request.extensions if isinstance(e.value, x509.OCSPNonce)
        )
        self.nonces.append(nonce)
        for device in self.devices:
            chain = device.certificates()
            for subject, issuer in pairwise(chain[1:]):
                builder = ocsp.OCSPRequestBuilder()
                own = builder.add_certificate(subject, issuer, hashes.SHA384()).build()
                if (own.serial_number, own.issuer_key_hash) == (
                    request.serial_number,
                    request.issuer_key_hash,
                ):
                    return Reply(content=self._answer(device, subject, issuer, nonce))
        return Reply(
            content=ocsp.OCSPResponseBuilder.build_unsuccessful(
                ocsp.OCSPResponseStatus.UNAUTHORIZED
            ).public_bytes(Encoding.DER)
        )

    def _answer(
        self,
        device: FakeDevice,
        subject: x509.Certificate,
        issuer: x509.Certificate,
        nonce: bytes,
    ) -> bytes:
        name = issuer.subject.rdns[0].rfc4514_string().removeprefix("CN=")
        responder = device.pki.issue(
            f"{name} OCSP",
            name,
            is_ca=False,
            extensions=(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.OCSP_SIGNING]),),
        )
        is_revoked = self.status is ocsp.OCSPCertStatus.REVOKED
        builder = (
            ocsp.OCSPResponseBuilder()
            .add_response(
                cert=subject,
                issuer=issuer,
                algorithm=hashes.SHA384(),
                cert_status=self.status,
                this_update=self.this_update,
                next_update=self.this_update + self.lifetime,
                revocation_time=self.this_update if is_revoked else None,
                revocation_reason=x509.ReasonFlags.key_compromise if is_revoked else None,
            )
            .responder_id(ocsp.OCSPResponderEncoding.HASH, responder)
            .certificates([responder])
        )
        if self.echoes_nonce:
            echoed = bytes(32) if self.other_nonce else nonce
            builder = builder.add_extension(x509.OCSPNonce(echoed), critical=False)
        key = device.pki.key(f"{name} OCSP")
        return _produced(builder.sign(key, hashes.SHA384()), self.this_update, key, responder)

"""What do NVIDIA's RIM service, OCSP responder and token service answer?

What comes back is unverified, but for the nonce of an OCSP answer, which is checked by the caller
who drew it. The keys of NRAS have no pinned root: their trust is the TLS connection itself.
"""

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import OCSPNonce, ocsp

from attestation.errors import MalformedEvidence
from attestation.fetch.errors import FetchFailed
from attestation.fetch.http import Asked, Fetcher
from attestation.nras.jwks import MAX_JWKS_BYTES, parse_jwks
from attestation.nvidia import ocsp_answer, rim_service
from attestation.x509 import Certificate

OCSP_NONCE_BYTES = 32
_OCSP_REQUEST = "application/ocsp-request"


def fetch_rim(fetcher: Fetcher, base: str, rim_id: str) -> bytes:
    """The signed XML.  Raises: FetchFailed."""
    asked = Asked(
        service="rim",
        base=base,
        path=f"/v1/rim/{rim_id}",
        what=rim_id,
        code="endorsement_missing",
        max_bytes=rim_service.MAX_ANSWER_BYTES,
    )
    content = fetcher.fetch(asked).content
    try:
        return rim_service.parse_rim_answer(content, rim_id=rim_id)
    except MalformedEvidence as err:
        raise FetchFailed(asked.code, "content", f"{rim_id}: {err}") from err


def fetch_ocsp(
    fetcher: Fetcher, base: str, *, subject: Certificate, issuer: Certificate, nonce: bytes
) -> bytes:
    """DER of the answer about ``subject``, asked with ``nonce``.  Raises: FetchFailed."""
    builder = ocsp.OCSPRequestBuilder().add_certificate(
        subject.inner, issuer.inner, hashes.SHA384()
    )
    request = builder.add_extension(OCSPNonce(nonce), critical=False).build()
    asked = Asked(
        service="ocsp",
        base=base,
        path="",
        body=request.public_bytes(Encoding.DER),
        content_type=_OCSP_REQUEST,
        what=f"OCSP answer about {subject.common_name[:64]}",
        code="crl_missing",
        max_bytes=ocsp_answer.MAX_ANSWER_BYTES,
    )
    return fetcher.fetch(asked).content


def fetch_jwks(fetcher: Fetcher, base: str) -> bytes:
    """The keys that NRAS signs with today, in JSON.  Raises: FetchFailed."""
    asked = Asked(
        service="nras",
        base=base,
        path="/.well-known/jwks.json",
        what="keys of NRAS",
        code="endorsement_missing",
        max_bytes=MAX_JWKS_BYTES,
    )
    content = fetcher.fetch(asked).content
    try:
        parse_jwks(content)
    except MalformedEvidence as err:
        raise FetchFailed(asked.code, "content", f"keys of NRAS: {err}") from err
    return content

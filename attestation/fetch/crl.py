"""Is this answer a revocation list, and when is it current?  [RFC 5280]"""

import re

from cryptography import x509

from attestation.fetch.cache import Window
from attestation.fetch.errors import FetchFailed
from attestation.fetch.http import Asked
from attestation.x509 import Certificate, verify_crl

_HEX = re.compile(rb"[0-9A-Fa-f]+")
_DER_SEQUENCE_START = b"\x30"
_PEM_CRL_START = b"-----BEGIN X509 CRL-----"


def crl_bytes(content: bytes, asked: Asked) -> bytes:
    """A CRL in DER or PEM; a PCCS sends the hex of DER.  Raises: FetchFailed("content")."""
    if _HEX.fullmatch(content.strip()) and len(content.strip()) % 2 == 0:
        content = bytes.fromhex(content.decode("ascii"))
    if not content.startswith((_DER_SEQUENCE_START, _PEM_CRL_START)):
        raise FetchFailed(asked.code, "content", f"{asked.what}: the answer is no CRL")
    return content


def crl_window(data: bytes, *, issuer: Certificate, what: str) -> Window:
    """When a CRL of this issuer is current.

    Raises: MalformedEvidence("format"); UntrustedEndorsement.
    """
    crl = verify_crl(data, issuer=issuer, what=what)
    number = [e.value for e in crl.inner.extensions if isinstance(e.value, x509.CRLNumber)]
    return Window(
        issued=crl.last_update,
        next_update=crl.next_update,
        number=number[0].crl_number if number else None,
    )

"""Did this key sign this payload?  COSE_Sign1 as AWS makes it, ES384 alone.  [RFC 9052 sec. 4.2]

The algorithm counts only in the protected header, where the signature covers it, and only because
it is the one we use; the unprotected header must be empty.
"""

from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric import ec

from attestation.errors import BadSignature, MalformedEvidence
from attestation.es384 import SIGNATURE_BYTES, is_signed_es384
from attestation.nitro import cbor

_SIGN1_TAG = b"\xd2"  # tag 18, optional: the context already says what this is
_CONTEXT = "Signature1"
_LABEL_ALGORITHM = 1
_ES384 = -35


@dataclass(frozen=True, slots=True, kw_only=True)
class CoseSign1:
    """One parsed message; ``payload`` is not verified before ``verify_sign1``."""

    protected: bytes
    payload: bytes
    signature: bytes

    @property
    def signed_bytes(self) -> bytes:
        """Sig_structure, without external data.  [RFC 9052 sec. 4.4]"""
        return cbor.encode_array(
            (
                cbor.encode_text(_CONTEXT),
                cbor.encode_bytes(self.protected),
                cbor.encode_bytes(b""),
                cbor.encode_bytes(self.payload),
            )
        )


def parse_sign1(data: bytes, *, what: str) -> CoseSign1:
    """The message in ``data``, tagged or not.

    Raises: MalformedEvidence: format, trailing_bytes; BadSignature("algorithm").
    """
    message = cbor.decode(data.removeprefix(_SIGN1_TAG), what=what)
    if not isinstance(message, tuple) or len(message) != 4:
        raise MalformedEvidence("format", f"{what}: not an array of 4")
    protected, unprotected, payload, signature = message
    if not isinstance(protected, bytes) or not isinstance(unprotected, dict):
        raise MalformedEvidence("format", f"{what}: its headers are not bytes and a map")
    if not isinstance(payload, bytes) or not isinstance(signature, bytes):
        raise MalformedEvidence("format", f"{what}: payload or signature are not bytes")
    _require_es384(protected, what)
    if unprotected:
        raise MalformedEvidence("format", f"{what}: unprotected header members")
    return CoseSign1(protected=protected, payload=payload, signature=signature)


def verify_sign1(message: CoseSign1, key: ec.EllipticCurvePublicKey, *, what: str) -> None:
    """Raises: BadSignature("cose_signature"): not exactly 96 bytes by ``key``."""
    if not is_signed_es384(key, message.signed_bytes, message.signature):
        raise BadSignature(
            "cose_signature", f"{what}: not signed by this key in {SIGNATURE_BYTES} bytes"
        )


def _require_es384(protected: bytes, what: str) -> None:
    header = cbor.decode(protected, what=f"{what} header") if protected else {}
    if not isinstance(header, dict):
        raise MalformedEvidence("format", f"{what}: its protected header is not a map")
    if header.get(_LABEL_ALGORITHM) != _ES384:
        raise BadSignature("algorithm", f"{what}: its protected algorithm is not ES384 (-35)")
    if len(header) != 1:
        raise MalformedEvidence("format", f"{what}: protected header members beyond alg")

"""What did an attested gateway do with one request?  A receipt says it, signed by an attested key.

    receipt   = {"purpose":"starshade/receipt/v1","id":"..","kid":"..", ...}  digests, no content
    signature = Ed25519 over JCS(receipt), by the key that the keyset lists as `kid`

The keyset is what the gateway's quote commits to, so whoever verified the quote can hold the
gateway to what it signed.  [RFC 8032, RFC 8785]
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from attestation.binding import jcs
from attestation.errors import BadSignature, UntrustedEndorsement
from attestation.keyset import ReceiptKey
from attestation.receipt_format import (
    MAX_TEXT_CHARS,
    PURPOSE,
    AuditAnchor,
    Outcome,
    Receipt,
    Revocation,
    VerdictClass,
    parse_receipt,
)
from attestation.strict_json import hex_bytes, parse_object, require_keys

__all__ = [
    "ALGORITHM",
    "MAX_RECEIPT_BYTES",
    "MAX_TEXT_CHARS",
    "PURPOSE",
    "AuditAnchor",
    "Outcome",
    "Receipt",
    "Revocation",
    "SignedReceipt",
    "VerdictClass",
    "parse_receipt",
    "receipt_key",
    "response_digest",
    "sign_receipt",
    "signed_receipt_json",
]

ALGORITHM = "Ed25519"
MAX_RECEIPT_BYTES = 16 * 1024  # a signed one has about 1,300
_MAX_DEPTH = 3
_SIGNATURE_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedReceipt:
    """A receipt and its signature; well formed, and believed only once `verify` returned."""

    receipt: Receipt
    signature: bytes

    def to_json(self) -> bytes:
        """Canonical bytes of the whole, as it is stored and served."""
        return _signed_json(jcs(self.receipt.to_json_value()), self.signature)

    def verify(self, keys: Sequence[ReceiptKey]) -> Receipt:
        """The receipt, signed by one of ``keys``, which come from an attested keyset.

        Raises: UntrustedEndorsement("unknown_kid"); BadSignature("receipt_signature").
        """
        key = next((key for key in keys if key.kid == self.receipt.kid), None)
        if key is None:
            raise UntrustedEndorsement("unknown_kid", "receipt: its key is not in the keyset")
        public_key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key.x))
        try:
            public_key.verify(self.signature, jcs(self.receipt.to_json_value()))
        except InvalidSignature as err:
            raise BadSignature("receipt_signature", "receipt: the signature does not hold") from err
        return self.receipt

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Raises: MalformedEvidence("format")."""
        what = "receipt"
        outer = require_keys(
            parse_object(data, what=what, max_bytes=MAX_RECEIPT_BYTES, max_depth=_MAX_DEPTH),
            what,
            required=frozenset({"receipt", "signature"}),
        )
        signature = hex_bytes(outer["signature"], f"{what}.signature", num_bytes=_SIGNATURE_BYTES)
        return cls(receipt=parse_receipt(outer["receipt"]), signature=signature)


def sign_receipt(receipt: Receipt, key: Ed25519PrivateKey) -> SignedReceipt:
    """Signed by ``key``, whose `receipt_key` is the one that ``receipt.kid`` names."""
    return SignedReceipt(receipt=receipt, signature=key.sign(jcs(receipt.to_json_value())))


def signed_receipt_json(receipt: Receipt, key: Ed25519PrivateKey) -> bytes:
    """`to_json` of what `sign_receipt` gives, at half the cost."""
    signed_bytes = jcs(receipt.to_json_value())
    return _signed_json(signed_bytes, key.sign(signed_bytes))


def receipt_key(public_key: Ed25519PublicKey) -> ReceiptKey:
    """The keyset's entry; ``kid`` is the key's JWK thumbprint.  [RFC 7638, RFC 8037 app. A.3]"""
    x = public_key.public_bytes_raw()
    jwk = json.dumps(
        {"crv": "Ed25519", "kty": "OKP", "x": _base64url(x)}, separators=(",", ":"), sort_keys=True
    )
    kid = _base64url(hashlib.sha256(jwk.encode()).digest())
    return ReceiptKey(kid=kid, alg=ALGORITHM, x=x.hex())


def response_digest(body: bytes, *, is_streamed: bool) -> str:
    """What ``response_sha256`` must be for a body that was received.

    Of a stream, comment lines and blank lines that end no event do not count: padding is made of
    them, below where receipts are made.  [WHATWG HTML sec. 9.2.6]
    """
    if is_streamed:
        blocks = (_without_comments(block) for block in body.split(b"\n\n"))
        body = b"".join(block + b"\n\n" for block in blocks if block)
    return hashlib.sha256(body).hexdigest()


def _signed_json(receipt: bytes, signature: bytes) -> bytes:
    return b'{"receipt":%b,"signature":"%b"}' % (receipt, signature.hex().encode())


def _without_comments(block: bytes) -> bytes:
    return b"\n".join(line for line in block.split(b"\n") if line and not line.startswith(b":"))


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

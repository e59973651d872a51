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
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Literal, Self, cast, get_args

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from attestation.binding import jcs
from attestation.errors import BadSignature, MalformedEvidence, UntrustedEndorsement
from attestation.keyset import ReceiptKey
from attestation.strict_json import (
    JsonObject,
    JsonValue,
    format_time,
    hex_bytes,
    integer,
    parse_object,
    require_keys,
    sha256_hex,
    text,
    utc_time,
)

Outcome = Literal["complete", "failed", "cancelled", "refused", "interrupted"]
VerdictClass = Literal["A", "B"]

PURPOSE = "starshade/receipt/v1"
ALGORITHM = "Ed25519"
MAX_RECEIPT_BYTES = 16 * 1024  # a signed one has about 1,300
MAX_TEXT_CHARS = 512
_MAX_DEPTH = 3
_SIGNATURE_BYTES = 64
_OUTCOMES = frozenset(get_args(Outcome))
_CLASSES = frozenset(get_args(VerdictClass))


@dataclass(frozen=True, slots=True, kw_only=True)
class Revocation:
    """A negative verdict on the worker while it answered: class A cuts streams, class B drains."""

    code: str
    verdict_class: VerdictClass


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditAnchor:
    """The head of the audit log when the receipt was signed: that log can no longer be shorter."""

    seq: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """One request and its end.  Digests are SHA-256 in lower-case hex.

    ``outcome``: complete, failed (an answer that ended in an error), cancelled (the reader left),
    refused (no answer began), interrupted (the gateway itself died; bytes sent are not known).
    ``request_sha256`` is None when the body was not read to its end. ``response_sha256`` is over
    what was sent, and ``bytes_sent`` its length; see `response_digest` for streams.
    """

    id: str
    kid: str
    replica: str
    endpoint: str
    started_at: datetime
    duration_ms: int
    outcome: Outcome
    status: int
    code: str | None
    is_streamed: bool
    request_sha256: str | None
    response_sha256: str
    bytes_sent: int
    model: str | None
    sampling_sha256: str | None
    worker: str | None
    weights_sha256: str | None
    lease_id: str | None
    worker_keyset_sha256: str | None
    policy_sha256: str
    revocation: Revocation | None
    audit: AuditAnchor | None

    def to_json_value(self) -> JsonObject:
        """The object that is signed."""
        value: dict[str, JsonValue] = {
            item.name: getattr(self, item.name)
            for item in fields(self)
            if item.name not in {"started_at", "revocation", "audit", "is_streamed"}
        }
        revocation, audit = self.revocation, self.audit
        return value | {
            "purpose": PURPOSE,
            "started_at": format_time(self.started_at),
            "streamed": self.is_streamed,
            "revocation": None
            if revocation is None
            else {"code": revocation.code, "class": revocation.verdict_class},
            "audit": None if audit is None else {"seq": audit.seq, "sha256": audit.sha256},
        }


_MEMBERS = frozenset(
    {item.name for item in fields(Receipt)} - {"is_streamed"} | {"purpose", "streamed"}
)


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


def parse_receipt(value: JsonValue) -> Receipt:
    """Raises: MalformedEvidence("format"): unknown, missing or bad members."""
    members = require_keys(value, "receipt", required=_MEMBERS)
    if members["purpose"] != PURPOSE:
        raise MalformedEvidence("format", f"receipt.purpose: want {PURPOSE}")
    if members["outcome"] not in _OUTCOMES:
        raise MalformedEvidence("format", "receipt.outcome: not one of those known")
    if not isinstance(members["streamed"], bool):
        raise MalformedEvidence("format", "receipt.streamed: not a boolean")
    return Receipt(
        id=_short(members, "id"),
        kid=_short(members, "kid"),
        replica=_short(members, "replica"),
        endpoint=_short(members, "endpoint"),
        started_at=utc_time(members["started_at"], "receipt.started_at"),
        duration_ms=integer(members["duration_ms"], "receipt.duration_ms"),
        outcome=cast("Outcome", members["outcome"]),
        status=integer(members["status"], "receipt.status", maximum=599),
        code=_optional(members, "code"),
        is_streamed=members["streamed"],
        request_sha256=_optional_digest(members, "request_sha256"),
        response_sha256=sha256_hex(members["response_sha256"], "receipt.response_sha256"),
        bytes_sent=integer(members["bytes_sent"], "receipt.bytes_sent"),
        model=_optional(members, "model"),
        sampling_sha256=_optional_digest(members, "sampling_sha256"),
        worker=_optional(members, "worker"),
        weights_sha256=_optional_digest(members, "weights_sha256"),
        lease_id=_optional(members, "lease_id"),
        worker_keyset_sha256=_optional_digest(members, "worker_keyset_sha256"),
        policy_sha256=sha256_hex(members["policy_sha256"], "receipt.policy_sha256"),
        revocation=_revocation(members["revocation"]),
        audit=_audit(members["audit"]),
    )


def _signed_json(receipt: bytes, signature: bytes) -> bytes:
    return b'{"receipt":%b,"signature":"%b"}' % (receipt, signature.hex().encode())


def _revocation(value: JsonValue) -> Revocation | None:
    if value is None:
        return None
    what = "receipt.revocation"
    members = require_keys(value, what, required=frozenset({"code", "class"}))
    if members["class"] not in _CLASSES:
        raise MalformedEvidence("format", f"{what}.class: want A or B")
    return Revocation(
        code=_short(members, "code"), verdict_class=cast("VerdictClass", members["class"])
    )


def _audit(value: JsonValue) -> AuditAnchor | None:
    if value is None:
        return None
    members = require_keys(value, "receipt.audit", required=frozenset({"seq", "sha256"}))
    return AuditAnchor(
        seq=integer(members["seq"], "receipt.audit.seq"),
        sha256=sha256_hex(members["sha256"], "receipt.audit.sha256"),
    )


def _short(members: JsonObject, name: str) -> str:
    value = text(members[name], f"receipt.{name}")
    if len(value) > MAX_TEXT_CHARS:
        raise MalformedEvidence("format", f"receipt.{name}: more than {MAX_TEXT_CHARS} characters")
    return value


def _optional(members: JsonObject, name: str) -> str | None:
    return None if members[name] is None else _short(members, name)


def _optional_digest(members: JsonObject, name: str) -> str | None:
    return None if members[name] is None else sha256_hex(members[name], f"receipt.{name}")


def _without_comments(block: bytes) -> bytes:
    return b"\n".join(line for line in block.split(b"\n") if line and not line.startswith(b":"))


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

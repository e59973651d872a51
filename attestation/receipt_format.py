"""What may a receipt say, and is this one?  Its members, in and out of JSON."""

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Literal, cast, get_args

from attestation.errors import MalformedEvidence
from attestation.strict_json import (
    JsonObject,
    JsonValue,
    format_time,
    integer,
    require_keys,
    sha256_hex,
    text,
    utc_time,
)

Outcome = Literal["complete", "failed", "cancelled", "refused", "interrupted"]
VerdictClass = Literal["A", "B"]

PURPOSE = "starshade/receipt/v1"
MAX_TEXT_CHARS = 512
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

"""Has anybody changed the audit log?  A chain of hashes over its events, and what must be in it.

    event  = JCS({"at":"..","fields":{..},"kind":"..","prev":hex,"seq":n})    seq counts from 1
    sha256 = SHA-256(event), and `prev` of the next; the first one's is 64 zeros

A chain shows an edit, a deletion and a swap by itself. That its end was cut off, or that all of it
was written anew, shows only against anchors: heads that were seen earlier and kept elsewhere.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from attestation.binding import jcs
from attestation.errors import MalformedEvidence
from attestation.receipt import AuditAnchor
from attestation.strict_json import (
    JsonObject,
    integer,
    parse_object,
    require_keys,
    sha256_hex,
    text,
)

FieldValue = str | int

NO_EVENT: Final = "0" * 64
MAX_EVENT_BYTES: Final = 8192
MAX_FIELDS: Final = 16
MAX_FIELD_CHARS: Final = 256
_KIND: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
_MEMBERS: Final = frozenset({"at", "fields", "kind", "prev", "seq"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent:
    """One row: exactly the bytes that were hashed."""

    seq: int
    event: bytes
    sha256: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """One event as people read it."""

    seq: int
    at: str
    kind: str
    fields: Mapping[str, FieldValue]
    prev: str


class AuditBroken(Exception):
    """The log is not what was written; ``code`` says how, ``seq`` where."""

    def __init__(self, code: str, seq: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.seq = seq


def extend(
    head: AuditAnchor | None, *, kind: str, fields: Mapping[str, FieldValue], at: datetime
) -> StoredEvent:
    """The next event. Texts are cut to MAX_FIELD_CHARS, fields to MAX_FIELDS.

    Raises: ValueError for a kind or the name of a field that is no identifier.
    """
    if not all(map(_KIND.fullmatch, (kind, *fields))):
        raise ValueError("kinds and fields of audit events are lower-case identifiers")
    seq = 1 if head is None else head.seq + 1
    event = jcs(
        {
            "at": at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "fields": {name: _bounded(value) for name, value in list(fields.items())[:MAX_FIELDS]},
            "kind": kind,
            "prev": NO_EVENT if head is None else head.sha256,
            "seq": seq,
        }
    )
    return StoredEvent(seq=seq, event=event, sha256=hashlib.sha256(event).digest())


def parse_event(stored: StoredEvent) -> AuditEvent:
    """Raises: AuditBroken `audit_malformed`."""
    try:
        members = require_keys(
            parse_object(stored.event, what="event", max_bytes=MAX_EVENT_BYTES, max_depth=2),
            "event",
            required=_MEMBERS,
        )
        return AuditEvent(
            seq=integer(members["seq"], "event.seq"),
            at=text(members["at"], "event.at"),
            kind=text(members["kind"], "event.kind"),
            fields=_fields(members),
            prev=sha256_hex(members["prev"], "event.prev"),
        )
    except MalformedEvidence as err:
        raise AuditBroken("audit_malformed", stored.seq, f"event {stored.seq}: {err}") from err


def verify_chain(events: Iterable[StoredEvent]) -> list[bytes]:
    """The hashes of all events, the first one's first: they follow each other without a gap.

    Raises: AuditBroken `audit_gap` (one is missing or doubled), `audit_edited` (its hash or its
    predecessor's is another), `audit_malformed`.
    """
    hashes: list[bytes] = []
    for stored in events:
        seq = len(hashes) + 1
        if stored.seq != seq:
            raise AuditBroken("audit_gap", seq, f"event {seq} is missing: {stored.seq} is next")
        if hashlib.sha256(stored.event).digest() != stored.sha256:
            raise AuditBroken("audit_edited", seq, f"event {seq} is not what was hashed")
        event = parse_event(stored)
        prev = hashes[-1].hex() if hashes else NO_EVENT
        if (event.seq, event.prev) != (seq, prev):
            raise AuditBroken("audit_edited", seq, f"event {seq} does not follow the one before it")
        hashes.append(stored.sha256)
    return hashes


def require_anchor(hashes: list[bytes], anchor: AuditAnchor, *, source: str) -> None:
    """The log still has, at this place, the event that `source` saw there.

    Raises: AuditBroken `audit_truncated`, `audit_edited`.
    """
    if anchor.seq > len(hashes):
        raise AuditBroken(
            "audit_truncated",
            len(hashes) + 1,
            f"the log ends at {len(hashes)}, but {source} saw event {anchor.seq}",
        )
    if anchor.seq < 1 or hashes[anchor.seq - 1].hex() != anchor.sha256:
        raise AuditBroken(
            "audit_edited", anchor.seq, f"event {anchor.seq} is not the one that {source} saw"
        )


def _bounded(value: FieldValue) -> FieldValue:
    return value[:MAX_FIELD_CHARS] if isinstance(value, str) else value


def _fields(members: JsonObject) -> Mapping[str, FieldValue]:
    fields = members["fields"]
    if not isinstance(fields, Mapping) or len(fields) > MAX_FIELDS:
        raise MalformedEvidence("format", "event.fields: not a small object")
    return {
        name: value if isinstance(value, int) else text(value, "event.fields")
        for name, value in fields.items()
    }

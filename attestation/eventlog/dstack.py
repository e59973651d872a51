"""Which events does dstack's JSON log hold?  [dstack cc-eventlog, TdxEvent]

A list of {imr, event_type, digest, event, event_payload}; ``imr`` 0 to 3 is the RTMR. Events of the
boot carry the digest that the firmware measured. Those of dstack itself have one type, and their
digest is computed here from name and payload, so that it speaks for both; a digest that was sent
along must be the same. The newer form sends ``preimage``, the JSON text that was hashed.
"""

import hashlib
import struct

from attestation.errors import MalformedEvidence
from attestation.eventlog.log import (
    DIGEST_BYTES,
    MAX_EVENTS,
    MAX_LOG_BYTES,
    RTMRS,
    Event,
    clipped,
    printable,
)
from attestation.strict_json import (
    JsonObject,
    JsonValue,
    integer,
    parse_array,
    parse_object,
    require_keys,
    text,
)

RUNTIME_EVENT = 0x08000001
MAX_PREIMAGE_BYTES = 64 * 1024
_KEYS = frozenset({"imr", "event_type", "digest", "event", "event_payload"})
_OPTIONAL = frozenset({"version", "preimage"})
_DEPTH = 2


def parse_dstack(data: bytes) -> tuple[Event, ...]:
    """The events in order.  Raises: MalformedEvidence("format")."""
    items = parse_array(
        data,
        what="event log",
        max_bytes=MAX_LOG_BYTES,
        max_depth=_DEPTH,
        max_items=MAX_EVENTS,
    )
    return tuple(_event(item) for item in items)


def _event(value: JsonValue) -> Event:
    entry = require_keys(value, "event log", required=_KEYS, optional=_OPTIONAL)
    register = RTMRS[integer(entry["imr"], "event log imr", maximum=len(RTMRS) - 1)]
    event_type = integer(entry["event_type"], "event log event_type", maximum=0xFFFFFFFF)
    name, payload = text(entry["event"], "event log event"), _hex(entry, "event_payload")
    digest, problem = _hex(entry, "digest"), ""
    if event_type == RUNTIME_EVENT:
        computed = _runtime_digest(entry, name, payload)
        if digest and digest != computed:
            problem = "its digest is not that of its name and payload"
        digest = computed
    if len(digest) != DIGEST_BYTES:
        raise MalformedEvidence("format", f"event log digest: {len(digest)} bytes, want 48")
    shown = printable(name.encode("utf-8"))
    return Event(
        register=register,
        event_type="dstack" if event_type == RUNTIME_EVENT else f"{event_type:#010x}",
        digest=digest,
        description=clipped(f"{shown}: {printable(payload)}" if shown else printable(payload)),
        problem=problem,
    )


def _runtime_digest(entry: JsonObject, name: str, payload: bytes) -> bytes:
    if entry.get("preimage") is None:
        head = struct.pack("<I", RUNTIME_EVENT) + b":" + name.encode("utf-8") + b":"
        return hashlib.sha384(head + payload).digest()
    preimage = _hex(entry, "preimage")
    hashed = parse_object(
        preimage, what="event log preimage", max_bytes=MAX_PREIMAGE_BYTES, max_depth=1
    )
    want = {"name": name, "type": RUNTIME_EVENT, "payload": payload.hex()}
    if dict(hashed) != want:
        raise MalformedEvidence("format", "event log preimage: not this event's name and payload")
    return hashlib.sha384(preimage).digest()


def _hex(entry: JsonObject, name: str) -> bytes:
    digits = text(entry[name], f"event log {name}")
    try:
        raw = bytes.fromhex(digits)
    except ValueError as err:
        raise MalformedEvidence("format", f"event log {name}: not hex") from err
    if len(digits) != 2 * len(raw):
        raise MalformedEvidence("format", f"event log {name}: not plain hex")
    return raw

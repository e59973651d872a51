"""Makes event logs in both forms, and quotes whose registers they explain."""

import hashlib
import json
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from attestation.eventlog.ccel import EV_NO_ACTION, SHA384, SPEC_ID
from attestation.eventlog.dstack import RUNTIME_EVENT
from attestation.fake import FakeTee

RTMR0_AT = 48 + 328
SHA256 = 0x000B
EV_SEPARATOR, EV_VARIABLE, EV_ACTION = 0x00000004, 0x80000001, 0x80000007


def sha384(data: bytes) -> bytes:
    return hashlib.sha384(data).digest()


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An event for register ``index`` (0 is MRTD) whose digest is that of ``data``."""

    index: int
    data: bytes
    event_type: int = EV_ACTION
    digest: bytes | None = None

    @property
    def sha384(self) -> bytes:
        return sha384(self.data) if self.digest is None else self.digest


def variable(name: str, data: bytes) -> bytes:
    """UEFI_VARIABLE_DATA."""
    return bytes(16) + struct.pack("<QQ", len(name), len(data)) + name.encode("utf-16-le") + data


ENTRIES = (
    Entry(index=1, data=variable("SecureBoot", b"\1"), event_type=EV_VARIABLE),
    Entry(index=1, data=bytes(4), event_type=EV_SEPARATOR),
    Entry(index=2, data=b"Calling EFI Application from Boot Option"),
    Entry(index=1, data=b"StartupLocality\0\0", event_type=EV_NO_ACTION, digest=bytes(48)),
    Entry(index=3, data="LOADED_IMAGE::LoadOptions".encode("utf-16-le")),
    Entry(index=4, data=b"\x1b[31mforged terminal text"),
)


def spec_id(algorithms: Sequence[tuple[int, int]] = ((SHA384, 48),), vendor: bytes = b"") -> bytes:
    """The first event, in the old form."""
    listed = b"".join(struct.pack("<HH", *algorithm) for algorithm in algorithms)
    event = SPEC_ID + struct.pack("<IBBBBI", 0, 0, 2, 0, 2, len(algorithms)) + listed
    event += bytes([len(vendor)]) + vendor
    return struct.pack("<II20sI", 0, EV_NO_ACTION, bytes(20), len(event)) + event


def ccel_event(entry: Entry, *, with_sha256: bool = False) -> bytes:
    """One event of the crypto-agile form."""
    digests = [struct.pack("<H", SHA384) + entry.sha384]
    if with_sha256:
        digests.insert(0, struct.pack("<H", SHA256) + hashlib.sha256(entry.data).digest())
    head = struct.pack("<III", entry.index, entry.event_type, len(digests))
    return head + b"".join(digests) + struct.pack("<I", len(entry.data)) + entry.data


def ccel(entries: Iterable[Entry] = ENTRIES, *, padding: bytes = b"\xff" * 64) -> bytes:
    """A whole area."""
    return spec_id() + b"".join(map(ccel_event, entries)) + padding


def expected_registers(entries: Iterable[Entry] = ENTRIES) -> list[bytes]:
    """MRTD and RTMR0 to 3 by a few lines of their own."""
    registers = [bytes(48)] * 5
    for entry in entries:
        if entry.event_type != EV_NO_ACTION:
            registers[entry.index] = sha384(registers[entry.index] + entry.sha384)
    return registers


def quote_with(rtmrs: Sequence[bytes]) -> bytes:
    """A quote with these RTMRs, not signed anew: measuring verifies nothing."""
    quote = FakeTee().quote(bytes(64))
    return quote[:RTMR0_AT] + b"".join(rtmrs) + quote[RTMR0_AT + 4 * 48 :]


def runtime_event(name: str, payload: bytes, **changes: Any) -> dict[str, Any]:
    """An event of dstack's own."""
    head = struct.pack("<I", RUNTIME_EVENT) + b":" + name.encode() + b":"
    return {
        "imr": 3,
        "event_type": RUNTIME_EVENT,
        "digest": sha384(head + payload).hex(),
        "event": name,
        "event_payload": payload.hex(),
        **changes,
    }


def dstack_events() -> list[dict[str, Any]]:
    """Boot events for RTMR0 to 2, and three of dstack's for RTMR3."""
    boot = [
        {
            "imr": index,
            "event_type": EV_ACTION,
            "digest": sha384(bytes([index])).hex(),
            "event": "",
            "event_payload": "",
        }
        for index in range(3)
    ]
    hashed = {"name": "key-provider", "type": RUNTIME_EVENT, "payload": b"kms".hex()}
    preimage = json.dumps(hashed, separators=(",", ":")).encode()
    return [
        *boot,
        runtime_event("app-id", bytes(20)),
        runtime_event("compose-hash", bytes(range(32)), digest=""),
        runtime_event(
            "key-provider",
            b"kms",
            digest=sha384(preimage).hex(),
            preimage=preimage.hex(),
            version=2,
        ),
    ]


def dstack(events: Sequence[dict[str, Any]]) -> bytes:
    return json.dumps(events).encode()

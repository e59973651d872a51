"""Which events does a CCEL area hold?  [UEFI 2.10 sec. 38.4; TCG PC Client PFP 1.06 sec. 10]

A TCG crypto-agile log: one event of the old form that names the digest algorithms, then events with
a digest each. Register 0 is MRTD, 1 to 4 are RTMR0 to RTMR3. The area ends in padding, all of it
zeros or all of it ones.
"""

import struct
from collections.abc import Iterator

from attestation.errors import MalformedEvidence
from attestation.eventlog.log import (
    MAX_EVENTS,
    MAX_LOG_BYTES,
    Event,
    Register,
    clipped,
    printable,
)

SPEC_ID = b"Spec ID Event03\0"
SHA384 = 0x000C
MAX_ALGORITHMS = 8
MAX_EVENT_BYTES = 256 * 1024
EV_NO_ACTION = 0x00000003
REGISTERS: tuple[Register, ...] = ("mrtd", "rtmr0", "rtmr1", "rtmr2", "rtmr3")
_DIGEST_BYTES = {0x0004: 20, 0x000B: 32, SHA384: 48, 0x000D: 64, 0x0012: 32}
_VARIABLE_HEADER = struct.Struct("<16s Q Q")  # GUID, name's characters, data's bytes
_VARIABLE_TYPES = frozenset({0x80000001, 0x80000002, 0x8000000C, 0x800000E0})
_NAMES = {
    0x00000000: "EV_PREBOOT_CERT",
    0x00000001: "EV_POST_CODE",
    EV_NO_ACTION: "EV_NO_ACTION",
    0x00000004: "EV_SEPARATOR",
    0x00000005: "EV_ACTION",
    0x00000006: "EV_EVENT_TAG",
    0x00000007: "EV_S_CRTM_CONTENTS",
    0x00000008: "EV_S_CRTM_VERSION",
    0x00000009: "EV_CPU_MICROCODE",
    0x0000000A: "EV_PLATFORM_CONFIG_FLAGS",
    0x0000000B: "EV_TABLE_OF_DEVICES",
    0x0000000C: "EV_COMPACT_HASH",
    0x0000000D: "EV_IPL",
    0x80000001: "EV_EFI_VARIABLE_DRIVER_CONFIG",
    0x80000002: "EV_EFI_VARIABLE_BOOT",
    0x80000003: "EV_EFI_BOOT_SERVICES_APPLICATION",
    0x80000004: "EV_EFI_BOOT_SERVICES_DRIVER",
    0x80000005: "EV_EFI_RUNTIME_SERVICES_DRIVER",
    0x80000006: "EV_EFI_GPT_EVENT",
    0x80000007: "EV_EFI_ACTION",
    0x80000008: "EV_EFI_PLATFORM_FIRMWARE_BLOB",
    0x80000009: "EV_EFI_HANDOFF_TABLES",
    0x8000000A: "EV_EFI_PLATFORM_FIRMWARE_BLOB2",
    0x8000000B: "EV_EFI_HANDOFF_TABLES2",
    0x8000000C: "EV_EFI_VARIABLE_BOOT2",
    0x80000010: "EV_EFI_HCRTM_EVENT",
    0x800000E0: "EV_EFI_VARIABLE_AUTHORITY",
}


class _Reader:
    """Consumes bytes front to back; asking beyond the end is the format error."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._padding_at = min(len(data.rstrip(b"\0")), len(data.rstrip(b"\xff")))
        self.offset = 0

    def take(self, num_bytes: int) -> bytes:
        end = self.offset + num_bytes
        if end > len(self._data):
            raise MalformedEvidence("format", f"CCEL: ends inside the field at {self.offset}")
        chunk = self._data[self.offset : end]
        self.offset = end
        return chunk

    def uint(self, num_bytes: int) -> int:
        return int.from_bytes(self.take(num_bytes), "little")

    @property
    def is_at_padding(self) -> bool:
        """What is left, if anything, is all zeros or all ones."""
        return self.offset >= self._padding_at

    def require_end(self, what: str) -> None:
        if self.offset != len(self._data):
            raise MalformedEvidence("format", f"CCEL: undeclared bytes in {what}")


def parse_ccel(data: bytes) -> tuple[Event, ...]:
    """The events after the header, in order.

    Raises: MalformedEvidence("format"); a log without SHA-384 is that too, since no TDX guest can
    have written it.
    """
    if len(data) > MAX_LOG_BYTES:
        raise MalformedEvidence("format", f"CCEL: {len(data)} bytes, at most {MAX_LOG_BYTES}")
    reader = _Reader(data)
    algorithms = _parse_header(reader)
    return tuple(_events(reader, algorithms))


def _parse_header(reader: _Reader) -> dict[int, int]:
    """The digest algorithms with their sizes."""
    reader.uint(4)  # register: none
    event_type, _ = reader.uint(4), reader.take(20)
    event = _Reader(reader.take(_event_bytes(reader)))
    if event_type != EV_NO_ACTION or event.take(len(SPEC_ID)) != SPEC_ID:
        raise MalformedEvidence("format", "CCEL: does not begin with a Spec ID event")
    event.take(8)  # platform class, version, errata, size of UINTN
    num_algorithms = event.uint(4)
    if not 0 < num_algorithms <= MAX_ALGORITHMS:
        raise MalformedEvidence(
            "format", f"CCEL: {num_algorithms} algorithms, want 1..{MAX_ALGORITHMS}"
        )
    algorithms: dict[int, int] = {}
    for _ in range(num_algorithms):
        algorithm, size = event.uint(2), event.uint(2)
        if _DIGEST_BYTES.get(algorithm) != size or algorithm in algorithms:
            raise MalformedEvidence("format", f"CCEL: digest algorithm {algorithm:#x} of {size}")
        algorithms[algorithm] = size
    event.take(event.uint(1))  # vendor information
    event.require_end("the Spec ID event")
    if SHA384 not in algorithms:
        raise MalformedEvidence("format", "CCEL: its events have no SHA-384 digest")
    return algorithms


def _events(reader: _Reader, algorithms: dict[int, int]) -> Iterator[Event]:
    num_events = 0
    while not reader.is_at_padding:
        num_events += 1
        if num_events > MAX_EVENTS:
            raise MalformedEvidence("format", f"CCEL: more than {MAX_EVENTS} events")
        index, event_type = reader.uint(4), reader.uint(4)
        if index >= len(REGISTERS):
            raise MalformedEvidence("format", f"CCEL: event {num_events} is for register {index}")
        digests = _digests(reader, algorithms, num_events)
        event = reader.take(_event_bytes(reader))
        yield Event(
            register=REGISTERS[index],
            event_type=_NAMES.get(event_type, f"{event_type:#010x}"),
            digest=digests[SHA384],
            description=_description(event_type, event),
            is_measured=event_type != EV_NO_ACTION,
        )


def _digests(reader: _Reader, algorithms: dict[int, int], number: int) -> dict[int, bytes]:
    """One digest for each algorithm of the header, in any order."""
    if reader.uint(4) != len(algorithms):
        raise MalformedEvidence(
            "format", f"CCEL: event {number} has not {len(algorithms)} digest(s)"
        )
    digests: dict[int, bytes] = {}
    for _ in algorithms:
        algorithm = reader.uint(2)
        if algorithm not in algorithms or algorithm in digests:
            raise MalformedEvidence(
                "format", f"CCEL: event {number} has digest algorithm {algorithm:#x}"
            )
        digests[algorithm] = reader.take(algorithms[algorithm])
    return digests


def _event_bytes(reader: _Reader) -> int:
    size = reader.uint(4)
    if size > MAX_EVENT_BYTES:
        raise MalformedEvidence("format", f"CCEL: an event of {size}, at most {MAX_EVENT_BYTES}")
    return size


def _description(event_type: int, event: bytes) -> str:
    if event_type in _VARIABLE_TYPES and len(event) >= _VARIABLE_HEADER.size:
        _, num_chars, num_bytes = _VARIABLE_HEADER.unpack_from(event)
        start, end = _VARIABLE_HEADER.size, _VARIABLE_HEADER.size + 2 * num_chars
        if end + num_bytes == len(event):
            return clipped(f"{printable(event[start:end])}: {num_bytes} bytes")
    return printable(event)

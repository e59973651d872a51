"""Does a log explain the registers of this Evidence?  Register by register, none left out."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from attestation.eventlog.ccel import parse_ccel
from attestation.eventlog.dstack import parse_dstack
from attestation.eventlog.log import DIGEST_BYTES, RTMRS, Event, Register, replay
from attestation.tdx.quote import TdReport


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterRow:
    """One register: what the log makes of it, what the Evidence says, None when not given."""

    register: Register
    num_events: int
    replayed: bytes
    quoted: bytes | None

    @property
    def is_equal(self) -> bool:
        """A register that no event explains is equal only while it is zero."""
        return self.quoted is None or self.replayed == self.quoted


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A replayed log beside the Evidence."""

    events: tuple[Event, ...]
    registers: tuple[RegisterRow, ...]

    @property
    def is_equal(self) -> bool:
        """Every register is explained, and no event contradicts itself."""
        return all(row.is_equal for row in self.registers) and not any(
            event.problem for event in self.events
        )


def parse_log(data: bytes) -> tuple[Event, ...]:
    """A CCEL area or dstack's JSON, told apart by the first byte.

    Raises: MalformedEvidence("format").
    """
    return parse_dstack(data) if data.lstrip()[:1] == b"[" else parse_ccel(data)


def measure(events: tuple[Event, ...], report: TdReport | None) -> Measured:
    """The log replayed; ``report`` None compares with nothing.

    MRTD is measured before there is a log, so it has a row only if the log speaks of it.
    """
    replayed = replay(events)
    named: tuple[Register, ...] = ("mrtd", *RTMRS) if "mrtd" in replayed else RTMRS
    quoted = _quoted(report)
    return Measured(
        events=events,
        registers=tuple(
            RegisterRow(
                register=register,
                num_events=_count(events, register),
                replayed=replayed.get(register, bytes(DIGEST_BYTES)),
                quoted=quoted.get(register),
            )
            for register in named
        ),
    )


def _quoted(report: TdReport | None) -> Mapping[Register, bytes]:
    if report is None:
        return {}
    return {"mrtd": report.mr_td, **dict(zip(RTMRS, report.rtmrs, strict=True))}


def _count(events: Iterable[Event], register: Register) -> int:
    return sum(event.register == register and event.is_measured for event in events)

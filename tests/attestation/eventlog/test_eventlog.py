"""Event logs are read strictly, replayed exactly, and hostile bytes meet only our errors."""

import json
import struct
import time
from typing import Any

import pytest

from attestation.errors import AttestationError, MalformedEvidence
from attestation.eventlog.ccel import EV_NO_ACTION, MAX_EVENT_BYTES, SHA384, parse_ccel
from attestation.eventlog.compare import measure, parse_log
from attestation.eventlog.dstack import parse_dstack
from attestation.eventlog.log import (
    MAX_DESCRIPTION_CHARS,
    MAX_EVENTS,
    MAX_LOG_BYTES,
    printable,
    replay,
)
from attestation.tdx.quote import TdReport, parse_quote
from tests.attestation.eventlog.logs import (
    ENTRIES,
    SHA256,
    Entry,
    ccel,
    ccel_event,
    dstack,
    dstack_events,
    expected_registers,
    quote_with,
    runtime_event,
    sha384,
    spec_id,
)
from tests.support.mutations import mutations


def _is_malformed(data: bytes) -> bool:
    with pytest.raises(MalformedEvidence) as caught:
        parse_log(data)
    return caught.value.code == "format"


def _report(rtmrs: list[bytes]) -> TdReport:
    body = parse_quote(quote_with(rtmrs)).body
    assert isinstance(body, TdReport)
    return body


def test_ccel_replays_into_the_registers() -> None:
    replayed = replay(parse_ccel(ccel()))

    assert list(replayed) == ["rtmr0", "rtmr1", "rtmr2", "rtmr3"]
    assert list(replayed.values()) == expected_registers()[1:]


def test_events_are_named_described_and_harmless() -> None:
    events = parse_ccel(ccel())

    assert [event.event_type for event in events][:2] == [
        "EV_EFI_VARIABLE_DRIVER_CONFIG",
        "EV_SEPARATOR",
    ]
    assert events[0].description == "SecureBoot: 1 bytes"
    assert events[4].description == "LOADED_IMAGE::LoadOptions"
    assert events[3].is_measured is False
    assert "\x1b" not in events[5].description


@pytest.mark.parametrize("padding", [b"", b"\0", b"\xff" * 1000, bytes(1000)])
def test_padding_of_one_kind_ends_the_area(padding: bytes) -> None:
    assert parse_ccel(ccel(padding=padding)) == parse_ccel(ccel())


def test_several_digest_algorithms() -> None:
    header = spec_id(((SHA256, 32), (SHA384, 48)), vendor=b"vendor")
    log = header + b"".join(ccel_event(entry, with_sha256=True) for entry in ENTRIES)

    assert parse_ccel(log) == parse_ccel(ccel())


def test_mrtd_is_compared_only_when_the_log_speaks_of_it() -> None:
    entries = (*ENTRIES, Entry(index=0, data=b"firmware volume"))
    report = _report(expected_registers()[1:])

    measured = measure(parse_ccel(ccel(entries)), report)

    assert measured.registers[0].register == "mrtd"
    assert [row.is_equal for row in measured.registers] == [False, True, True, True, True]
    assert measure(parse_ccel(ccel()), report).registers[0].register == "rtmr0"


def test_every_register_must_be_explained() -> None:
    rtmrs = expected_registers()[1:]
    events = parse_ccel(ccel())
    without_rtmr3 = tuple(event for event in events if event.register != "rtmr3")

    assert measure(events, _report(rtmrs)).is_equal
    assert not measure(without_rtmr3, _report(rtmrs)).is_equal
    assert measure(without_rtmr3, _report([*rtmrs[:3], bytes(48)])).is_equal
    for index in range(4):
        changed = list(rtmrs)
        changed[index] = sha384(changed[index])
        rows = measure(events, _report(changed)).registers
        assert [row.is_equal for row in rows] == [other != index for other in range(4)]


_EVENT = ccel_event(ENTRIES[2])


@pytest.mark.parametrize(
    "log",
    [
        b"",
        b"\0" * 100,
        spec_id()[:-1],
        b"\1" + ccel()[1:4] + struct.pack("<I", 4) + ccel()[8:],  # first event is no Spec ID
        spec_id().replace(b"Event03", b"Event02"),
        spec_id(()),
        spec_id(((SHA256, 32),)),
        spec_id(((SHA384, 32),)),
        spec_id(((0x9999, 48), (SHA384, 48))),
        spec_id(((SHA384, 48), (SHA384, 48))),
        spec_id(((SHA384, 48),) * 9),
        spec_id() + _EVENT[:-1],
        spec_id() + _EVENT + b"\1",
        spec_id() + _EVENT + b"\xff\0",
        spec_id() + struct.pack("<I", 5) + _EVENT[4:],
        spec_id() + _EVENT[:8] + struct.pack("<I", 2) + _EVENT[12:],
        spec_id() + _EVENT[:8] + struct.pack("<I", 0) + _EVENT[12:],
        spec_id() + _EVENT[:12] + struct.pack("<H", SHA256) + _EVENT[14:],
        spec_id() + _EVENT[:62] + b"\xff\xff\xff\xff" + _EVENT[66:],
        spec_id(((SHA256, 32), (SHA384, 48)))
        + _EVENT[:8]
        + struct.pack("<I", 2)
        + 2 * (struct.pack("<H", SHA384) + bytes(48))
        + bytes(4),
    ],
)
def test_a_malformed_area_is_refused(log: bytes) -> None:
    assert _is_malformed(log)


def test_sizes_are_bounded() -> None:
    empty = ccel_event(Entry(index=0, data=b"", event_type=EV_NO_ACTION))

    assert _is_malformed(bytes(MAX_LOG_BYTES + 1))
    assert len(parse_ccel(spec_id() + empty * MAX_EVENTS)) == MAX_EVENTS
    assert _is_malformed(spec_id() + empty * (MAX_EVENTS + 1))


def test_an_event_is_bounded() -> None:
    largest = Entry(index=1, data=bytes(MAX_EVENT_BYTES))
    larger = Entry(index=1, data=bytes(MAX_EVENT_BYTES + 1))

    assert len(parse_ccel(ccel([largest]))) == 1
    assert _is_malformed(ccel([larger]))


def test_no_byte_of_the_first_event_is_left_unread() -> None:
    header = spec_id()
    size = int.from_bytes(header[28:32], "little")
    longer = header[:28] + struct.pack("<I", size + 1) + header[32:] + b"\0"

    assert _is_malformed(longer + _EVENT)


def test_a_long_area_takes_no_longer_than_it_is_long() -> None:
    zero = ccel_event(Entry(index=0, data=b"", event_type=0, digest=bytes(48)))
    log = spec_id() + zero * (MAX_EVENTS - 1) + b"\0" * (2 * 1024 * 1024) + b"\1"

    started = time.process_time()
    assert _is_malformed(log)
    assert time.process_time() - started < 5


def test_dstack_replays_into_the_registers() -> None:
    events = parse_dstack(dstack(dstack_events()))
    replayed = replay(events)

    digests = [event.digest for event in events]
    rtmr3 = bytes(48)
    for digest in digests[3:]:
        rtmr3 = sha384(rtmr3 + digest)
    assert [replayed[f"rtmr{i}"] for i in range(3)] == [  # type: ignore[index]
        sha384(bytes(48) + sha384(bytes([index]))) for index in range(3)
    ]
    assert replayed["rtmr3"] == rtmr3
    assert events[4].description.startswith("compose-hash: 32 bytes 0001")
    assert not any(event.problem for event in events)


def test_a_payload_is_bound_by_its_digest() -> None:
    good = dstack_events()
    report = _report([replay(parse_dstack(dstack(good)))[f"rtmr{i}"] for i in range(4)])  # type: ignore[index]
    edited = [*good[:3], runtime_event("app-id", b"\1" * 20, digest=good[3]["digest"]), *good[4:]]
    other_digest = [*good[:3], {**good[3], "digest": "00" * 48}, *good[4:]]

    measured = measure(parse_dstack(dstack(edited)), report)
    assert not measured.registers[3].is_equal
    assert [event.problem != "" for event in measured.events] == [0, 0, 0, 1, 0, 0]

    measured = measure(parse_dstack(dstack(other_digest)), report)
    assert measured.registers[3].is_equal
    assert not measured.is_equal

    assert measure(parse_dstack(dstack(good)), report).is_equal


@pytest.mark.parametrize(
    "changes",
    [
        {"imr": 4},
        {"imr": -1},
        {"imr": True},
        {"imr": "0"},
        {"event_type": 2**32},
        {"digest": "00" * 47},
        {"digest": "0x" + "00" * 47},
        {"digest": "00 " * 48},
        {"digest": "zz"},
        {"digest": None},
        {"event": 1},
        {"event_payload": "0"},
        {"unknown": 1},
    ],
)
def test_a_malformed_dstack_event_is_refused(changes: dict[str, Any]) -> None:
    assert _is_malformed(dstack([{**dstack_events()[0], **changes}]))


@pytest.mark.parametrize(
    "preimage",
    [
        b"no json",
        b'{"name":"app-id","type":134217729,"payload":"6b6d73"}',
        b'{"name":"key-provider","type":134217729,"payload":"00"}',
        b'{"name":"key-provider","type":1,"payload":"6b6d73"}',
        b'{"name":"key-provider","type":134217729,"payload":"6b6d73","more":1}',
        b'{"name":"key-provider","name":"key-provider","type":134217729,"payload":"6b6d73"}',
    ],
)
def test_a_preimage_is_this_events(preimage: bytes) -> None:
    event = runtime_event(
        "key-provider", b"kms", digest=sha384(preimage).hex(), preimage=preimage.hex()
    )

    assert _is_malformed(dstack([event]))


def test_json_that_is_no_list_of_events_is_refused() -> None:
    assert _is_malformed(b"[1]")
    assert _is_malformed(b"[[]]")
    assert _is_malformed(b"[{}]")
    assert _is_malformed(b"[")
    assert _is_malformed(json.dumps([{}] * (MAX_EVENTS + 1)).encode())
    assert parse_log(b" []") == ()


def test_descriptions_are_short_and_printable() -> None:
    for data in (b"x" * 10_000, b"\x1b[2J", b"\r\n", "\u202eevil".encode(), b"\xff" * 1000, b"\0"):
        text = printable(data)
        assert text.isprintable()
        assert len(text) <= MAX_DESCRIPTION_CHARS


@pytest.mark.parametrize("log", [ccel(), dstack(dstack_events())], ids=["ccel", "dstack"])
def test_two_thousand_mutations_meet_only_our_errors(log: bytes) -> None:
    for damaged in mutations(log, 2000, seed=20261130):
        try:
            measure(parse_log(damaged), None)
        except AttestationError:
            continue

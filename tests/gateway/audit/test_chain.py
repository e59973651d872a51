"""Does every change of the log show, and at the event where it was made?"""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestation.receipt import AuditAnchor
from gateway.audit_chain import (
    MAX_FIELD_CHARS,
    MAX_FIELDS,
    AuditBroken,
    StoredEvent,
    extend,
    parse_event,
    require_anchor,
    verify_chain,
)

AT = datetime(2026, 1, 1, tzinfo=UTC)


def anchor_of(event: StoredEvent) -> AuditAnchor:
    return AuditAnchor(seq=event.seq, sha256=event.sha256.hex())


def make(num_events: int, *, kind: str = "key_created") -> list[StoredEvent]:
    events: list[StoredEvent] = []
    for number in range(num_events):
        head = anchor_of(events[-1]) if events else None
        at = AT + timedelta(milliseconds=number)
        events.append(extend(head, kind=kind, fields={"key": f"k{number}", "n": number}, at=at))
    return events


LOG = make(6)


def broken(events: list[StoredEvent]) -> tuple[str, int]:
    with pytest.raises(AuditBroken) as caught:
        verify_chain(events)
    return caught.value.code, caught.value.seq


def test_what_was_appended_holds_and_reads_back() -> None:
    assert verify_chain(LOG) == [event.sha256 for event in LOG]
    assert verify_chain([]) == []
    event = parse_event(LOG[2])
    assert (event.kind, event.fields) == ("key_created", {"key": "k2", "n": 2})
    assert event.at == "2026-01-01T00:00:00.002Z"
    assert event.prev == LOG[1].sha256.hex()


@given(st.integers(0, 5), st.data())
def test_no_bit_of_an_event_may_change(number: int, data: st.DataObject) -> None:
    event = bytearray(LOG[number].event)
    bit = data.draw(st.integers(0, len(event) * 8 - 1))
    event[bit // 8] ^= 1 << bit % 8
    edited = [*LOG]
    edited[number] = replace(LOG[number], event=bytes(event))
    assert broken(edited) == ("audit_edited", number + 1)


def test_an_edit_that_hashes_itself_anew_breaks_the_next_one() -> None:
    edited = [*LOG]
    edited[2] = extend(anchor_of(LOG[1]), kind="key_revoked", fields={}, at=AT)
    assert broken(edited) == ("audit_edited", 4)


@pytest.mark.parametrize("number", [0, 3])
def test_a_deletion(number: int) -> None:
    assert broken(LOG[:number] + LOG[number + 1 :]) == ("audit_gap", number + 1)


def test_a_deletion_that_numbers_anew() -> None:
    rest = [replace(event, seq=event.seq - 1) for event in LOG[3:]]
    assert broken([*LOG[:2], *rest]) == ("audit_edited", 3)


def test_a_doubled_and_a_swapped_event() -> None:
    assert broken([*LOG[:3], LOG[2], *LOG[3:]]) == ("audit_gap", 4)
    assert broken([LOG[1], LOG[0], *LOG[2:]]) == ("audit_gap", 1)


def test_an_event_that_is_none() -> None:
    import hashlib

    junk = b"{}"
    stored = StoredEvent(seq=1, event=junk, sha256=hashlib.sha256(junk).digest())
    assert broken([stored]) == ("audit_malformed", 1)


def test_a_cut_end_shows_only_against_an_anchor() -> None:
    hashes = verify_chain(LOG[:4])
    require_anchor(hashes, anchor_of(LOG[3]), source="a receipt")
    with pytest.raises(AuditBroken) as caught:
        require_anchor(hashes, anchor_of(LOG[4]), source="a receipt")
    assert (caught.value.code, caught.value.seq) == ("audit_truncated", 5)


def test_a_log_written_anew_shows_against_an_anchor() -> None:
    hashes = verify_chain(make(6, kind="other"))
    with pytest.raises(AuditBroken) as caught:
        require_anchor(hashes, anchor_of(LOG[4]), source="a receipt")
    assert caught.value.code == "audit_edited"
    with pytest.raises(AuditBroken):
        require_anchor(hashes, replace(anchor_of(LOG[4]), seq=0), source="a receipt")


def test_what_is_too_much_is_cut() -> None:
    fields = {f"f{number}": "x" * (MAX_FIELD_CHARS + 1) for number in range(MAX_FIELDS + 1)}
    event = parse_event(extend(None, kind="k", fields=fields, at=AT))
    assert len(event.fields) == MAX_FIELDS
    assert {len(str(value)) for value in event.fields.values()} == {MAX_FIELD_CHARS}


@pytest.mark.parametrize(("kind", "field"), [("Bad kind", "f"), ("k", "a b"), ("", "f")])
def test_names_are_identifiers(kind: str, field: str) -> None:
    with pytest.raises(ValueError, match="identifiers"):
        extend(None, kind=kind, fields={field: 1}, at=AT)

"""Is a sealed request accepted once, inside its window, and never forgotten too early?"""

from datetime import UTC, datetime, timedelta

import pytest

from gateway.problems import GatewayError
from gateway.replay import DATE_WINDOW, ReplayGuard, RequestName, parse_date

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAME = RequestName(1, b"enc")


def code_of(guard: ReplayGuard, name: RequestName, date: datetime | None, now: datetime) -> str:
    with pytest.raises(GatewayError) as caught:
        guard.require_new(name, date=date, now=now)
    return caught.value.code


def test_a_second_time_is_a_replay_until_the_date_runs_out() -> None:
    guard = ReplayGuard()
    guard.require_new(NAME, date=NOW, now=NOW)
    assert code_of(guard, NAME, NOW, NOW + DATE_WINDOW) == "replay_detected"
    late = NOW + DATE_WINDOW + timedelta(seconds=1)
    assert code_of(guard, NAME, NOW, late) == "date_outside_window"


def test_an_undated_request_is_remembered_for_good() -> None:
    guard = ReplayGuard()
    guard.require_new(NAME, date=None, now=NOW)
    assert code_of(guard, NAME, None, NOW + timedelta(days=9)) == "replay_detected"


@pytest.mark.parametrize("offset_s", [-301, 301])
def test_a_date_outside_the_window_is_refused(offset_s: int) -> None:
    date = NOW + timedelta(seconds=offset_s)
    assert code_of(ReplayGuard(), NAME, date, NOW) == "date_outside_window"


def test_a_full_memory_refuses_and_frees_only_what_ran_out() -> None:
    guard = ReplayGuard(max_remembered=1)
    guard.require_new(NAME, date=NOW, now=NOW)
    other = RequestName(1, b"other")
    assert code_of(guard, other, NOW, NOW) == "overloaded"
    later = NOW + DATE_WINDOW + timedelta(seconds=1)
    guard.require_new(other, date=later, now=later)


def test_what_was_sealed_to_an_erased_key_is_forgotten() -> None:
    guard = ReplayGuard(max_remembered=2)
    other = RequestName(2, b"enc")
    guard.require_new(NAME, date=None, now=NOW)
    guard.require_new(other, date=NOW, now=NOW)
    guard.forget_key(NAME.key_id)
    guard.require_new(NAME, date=None, now=NOW)  # there is room again
    assert code_of(guard, other, NOW, NOW) == "replay_detected"


def test_many_erased_keys_leave_nothing_behind() -> None:
    guard = ReplayGuard(max_remembered=4)
    for key_id in range(50):
        for number in range(4):
            guard.require_new(RequestName(key_id, bytes([number])), date=NOW, now=NOW)
        guard.forget_key(key_id)
    assert len(guard._ends) <= 12


def test_the_key_id_is_part_of_the_name() -> None:
    guard = ReplayGuard()
    guard.require_new(NAME, date=NOW, now=NOW)
    guard.require_new(RequestName(2, b"enc"), date=NOW, now=NOW)


def test_http_dates() -> None:
    assert parse_date("Thu, 01 Jan 2026 00:00:00 GMT") == NOW


@pytest.mark.parametrize(
    "value",
    [
        "yesterday",
        "",
        "Thu, 01 Jan 2026 00:00:00 +9999999999999999",
        "Thu, 01 Jan 99999999999999999999 00:00:00 GMT",
        "Thu, 01 Jan 2026 99:00:00 GMT",
    ],
)
def test_what_is_no_http_date(value: str) -> None:
    with pytest.raises(GatewayError) as caught:
        parse_date(value)
    assert caught.value.code == "date_outside_window"

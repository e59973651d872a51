"""Which events does a gateway write, and does `starshade audit verify` see each tampering?"""

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gateway.audit import REFUSALS_BURST, AuditLog
from gateway.audit_cli import audit
from gateway.audit_head import HeadFile
from gateway.db import ApiKeyStore, migrate, open_engine
from gateway.db.writer import DatabaseWriter
from gateway.keys_cli import keys
from tests.gateway.support import chat_body, error_of, running_stack, wait_until
from tests.support.patience import PATIENCE_S

Events = list[dict[str, Any]]


def run(state: Path, *arguments: str) -> Result:
    return CliRunner().invoke(audit, [*arguments, "--state-dir", str(state)])


def events(state: Path) -> Events:
    result = run(state, "show", "--json", "--last", "1000")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.output.splitlines()]


def verdict(state: Path, *arguments: str) -> dict[str, Any]:
    result = run(state, "verify", "--json", *arguments)
    found: dict[str, Any] = json.loads(result.output)
    assert result.exit_code == (0 if found["whole"] else 1)
    return found


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A gateway's folder after some requests, one of whose receipts was kept."""
    state = tmp_path_factory.mktemp("audit")
    with running_stack(state) as stack:
        stack.chat()
        stack.chat(model="other")
        stack.chat(temperature=9)
        stack.client.post(
            "/v1/chat/completions", json=chat_body(), headers={"authorization": "Bearer x"}
        )
        wait_until(lambda: len(events(state)) >= 6)
        kept = stack.chat().headers["starshade-receipt"]
        (state / "kept.json").write_bytes(stack.client.get(f"/v1/receipts/{kept}").content)
    return state


@pytest.fixture
def copy(used: Path, tmp_path: Path) -> Path:
    """To tamper with."""
    for name in ("gateway.db", "audit-head.json", "kept.json"):
        (tmp_path / name).write_bytes((used / name).read_bytes())
    return tmp_path


def test_the_events_of_a_gateway_s_life(used: Path) -> None:
    found = events(used)
    assert [event["seq"] for event in found] == list(range(1, len(found) + 1))
    kinds = [event["kind"] for event in found]
    assert set(kinds) >= {"key_created", "gateway_started", "lease_granted", "request_refused"}
    assert kinds[-1] == "gateway_stopped"
    refused = {e["fields"]["code"]: e["fields"] for e in found if e["kind"] == "request_refused"}
    assert set(refused) == {"model_not_found", "invalid_value", "invalid_api_key"}
    assert {"key", "receipt"} <= refused["invalid_value"].keys()
    assert not {"key", "receipt"} & refused["invalid_api_key"].keys()
    (granted,) = [e["fields"] for e in found if e["kind"] == "lease_granted"]
    assert (granted["worker"], granted["tier"]) == ("worker-0", "warning")


def test_a_log_that_nobody_touched_is_whole(used: Path) -> None:
    found = verdict(used, "--receipt", str(used / "kept.json"))
    assert (found["whole"], found["head_file"], found["given"]) == (True, True, 1)
    assert (found["events"], found["receipts"]) == (len(events(used)), 4)
    assert verdict(used, "--head", found["head"])["whole"]
    assert run(used, "verify").output.startswith(f"WHOLE: {found['events']} events")


def tamper(state: Path, *statements: str) -> None:
    with contextlib.closing(sqlite3.connect(state / "gateway.db")) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()


TAMPERING: dict[str, tuple[str, str]] = {
    "an edited event": (
        "UPDATE audit_event SET event = CAST(replace(event, 'warning', 'affirming') AS BLOB)",
        "audit_edited",
    ),
    "a deleted event": ("DELETE FROM audit_event WHERE seq = 2", "audit_gap"),
    "a cut end": ("DELETE FROM audit_event WHERE seq > 2", "audit_truncated"),
    "nothing left": ("DELETE FROM audit_event", "audit_truncated"),
    "an event as text": (
        "UPDATE audit_event SET event = replace(CAST(event AS TEXT), 'gateway', 'gatewax')"
        " WHERE seq = 2",
        "audit_malformed",
    ),
    "an event as bytes that are no text": (
        "UPDATE audit_event SET event = CAST(x'ff' AS TEXT) WHERE seq = 2",
        "audit_malformed",
    ),
    "a hash as a number": ("UPDATE audit_event SET sha256 = 7 WHERE seq = 2", "audit_malformed"),
    "a place as text": ("UPDATE audit_event SET seq = 'x' WHERE seq = 2", "audit_gap"),
    "every place as text": ("UPDATE audit_event SET seq = 'x' || seq", "audit_malformed"),
    "the last place as text": (
        "UPDATE audit_event SET seq = 'x' WHERE seq = (SELECT max(seq) FROM audit_event)",
        "audit_malformed",
    ),
    "a receipt as text": (
        "UPDATE receipt SET body = 'x' WHERE rowid = (SELECT max(rowid) FROM receipt)",
        "audit_malformed",
    ),
    "a receipt as a number": ("UPDATE receipt SET body = 7", "audit_malformed"),
}


@pytest.mark.parametrize("how", TAMPERING)
def test_tampering_shows(copy: Path, how: str) -> None:
    statement, code = TAMPERING[how]
    tamper(copy, statement)
    assert verdict(copy)["code"] == code
    result = run(copy, "verify")
    assert (result.exit_code, f"[{code}]" in result.output) == (1, True)


def test_what_is_no_event_is_named_by_its_place(copy: Path) -> None:
    tamper(copy, "UPDATE audit_event SET event = 'x' WHERE seq = 3")
    assert verdict(copy)["seq"] == 3
    shown = run(copy, "show")
    assert (shown.exit_code, "event 3" in shown.output) == (1, True)
    assert "next:  `starshade audit verify`" in shown.stderr
    tamper(copy, "UPDATE audit_event SET seq = 'x'  || seq")
    assert verdict(copy)["seq"] == 1


def test_no_event_follows_an_end_that_is_none(copy: Path) -> None:
    """The log fails closed, and heals when the row does."""
    with running_stack(copy) as stack:
        assert stack.chat().status_code == 200
        tamper(copy, "UPDATE audit_event SET sha256 = CAST(sha256 || 'x' AS TEXT)")
        stack.chat(model="other")  # an event
        wait_until(lambda: stack.chat().status_code == 503)
        assert error_of(stack.chat())["code"] == "receipt_unavailable"
        created = CliRunner().invoke(keys, ["create", "--state-dir", str(copy)])
        assert (created.exit_code, "RowDamaged" in created.output) == (1, True)
        tamper(copy, "DELETE FROM audit_event")
        wait_until(lambda: stack.chat().status_code == 200)


def test_a_gateway_starts_with_a_log_that_cannot_go_on(
    copy: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tamper(copy, "UPDATE audit_event SET seq = 'x' || seq")
    engine = open_engine(f"sqlite:///{copy}/gateway.db")
    writer = DatabaseWriter(engine, monotonic_ns=lambda: 0)
    made = AuditLog(
        writer,
        head_file=HeadFile(copy / "audit-head.json", monotonic_ns=lambda: 0),
        utc_now=lambda: datetime(2026, 1, 1, tzinfo=UTC),
        monotonic_ns=lambda: 0,
    )
    made.start(engine)
    engine.dispose()
    assert made.head is None
    assert "cannot be continued" in caplog.text


def test_each_anchor_shows_a_cut_end_by_itself(copy: Path) -> None:
    cut = "DELETE FROM audit_event WHERE seq > 2"
    tamper(copy, cut)
    (copy / "audit-head.json").unlink()
    assert verdict(copy)["code"] == "audit_truncated"  # by the stored receipts
    tamper(copy, "DELETE FROM receipt")
    assert verdict(copy)["whole"]  # whoever holds all anchors can do this
    assert verdict(copy, "--receipt", str(copy / "kept.json"))["code"] == "audit_truncated"
    assert verdict(copy, "--head", f"3:{'ab' * 32}")["code"] == "audit_truncated"
    assert verdict(copy, "--head", f"1:{'ab' * 32}")["code"] == "audit_edited"


def test_the_next_gateway_notes_that_its_log_was_cut(copy: Path) -> None:
    tamper(copy, "DELETE FROM audit_event WHERE seq > 2", "DELETE FROM receipt")
    with running_stack(copy):
        pass
    (missing,) = [e["fields"] for e in events(copy) if e["kind"] == "head_missing"]
    assert missing["seq"] > 2


def test_a_folder_without_a_log(tmp_path: Path) -> None:
    for command in ("verify", "show"):
        assert run(tmp_path, command).exit_code == 2
    assert run(tmp_path, "verify", "--head", "1:2").exit_code == 2


def test_a_log_in_another_file_than_the_folder_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STARSHADE_DATABASE_URL", f"sqlite:///{tmp_path}/other.db")
    for command in ("verify", "show"):
        assert run(tmp_path, command).exit_code == 2
    CliRunner().invoke(keys, ["create", "--state-dir", str(tmp_path)])
    assert verdict(tmp_path)["events"] == 1
    assert [event["kind"] for event in events(tmp_path)] == ["key_created"]


def test_an_event_of_odd_words_is_shown_as_text(tmp_path: Path) -> None:
    CliRunner().invoke(keys, ["create", "--state-dir", str(tmp_path)])
    odd = "CAST(replace(event, 'key_created', '[/]') AS BLOB)"
    tamper(tmp_path, "UPDATE audit_event SET event = " + odd)  # noqa: S608
    assert " [/] " in run(tmp_path, "show").stdout


def test_an_empty_list_says_what_to_do(tmp_path: Path) -> None:
    CliRunner().invoke(keys, ["list", "--state-dir", str(tmp_path)])
    assert "next:  `starshade up` starts one" in run(tmp_path, "show").stderr
    CliRunner().invoke(keys, ["create", "--state-dir", str(tmp_path)])
    assert run(tmp_path, "show", "--kind", "key_created").stderr == ""
    assert "no --kind" in run(tmp_path, "show", "--kind", "other").stderr


def test_keys_are_noted_with_what_was_done_to_them(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/gateway.db")
    migrate(engine)
    store = ApiKeyStore(engine)
    store.create(label="l", tenant="t", now_ns=1)
    (made,) = store.list_keys()
    store.rotate(made.id, now_ns=2, grace_ns=10)
    assert store.revoke(made.id, now_ns=3)
    assert not store.revoke(made.id, now_ns=4)
    engine.dispose()
    found = events(tmp_path)
    assert [event["kind"] for event in found] == ["key_created", "key_rotated", "key_revoked"]
    assert found[1]["fields"]["replaces"] == made.id == found[2]["fields"]["key"]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[tuple[AuditLog, DatabaseWriter, Callable[[int], None]]]:
    """A log at a clock of its own."""
    engine = open_engine(f"sqlite:///{tmp_path}/gateway.db")
    migrate(engine)
    now_ns = [0]
    writer = DatabaseWriter(engine, monotonic_ns=lambda: now_ns[0], max_queued=300)
    made = AuditLog(
        writer,
        head_file=HeadFile(tmp_path / "audit-head.json", monotonic_ns=lambda: now_ns[0]),
        utc_now=lambda: datetime(2026, 1, 1, tzinfo=UTC),
        monotonic_ns=lambda: now_ns[0],
    )
    made.start(engine)

    def set_clock_s(seconds: int) -> None:
        now_ns[0] = seconds * 1_000_000_000

    yield made, writer, set_clock_s
    engine.dispose()


def test_a_flood_of_refusals_is_counted(
    log: tuple[AuditLog, DatabaseWriter, Callable[[int], None]], tmp_path: Path
) -> None:
    made, writer, set_clock_s = log
    for _ in range(REFUSALS_BURST + 50):
        made.refused("invalid_api_key", None)
    made.refused("upstream_verification_failed", "debug_enabled", endpoint="/v1/x")
    set_clock_s(2)
    made.refused("invalid_api_key", None)
    writer.start()
    writer.stop()
    made.stop()
    found = events(tmp_path)
    assert len(found) == REFUSALS_BURST + 2
    assert found[-1]["fields"] == {"code": "invalid_api_key", "left_out": 50}
    assert found[-2]["fields"]["detail"] == "debug_enabled"
    assert json.loads((tmp_path / "audit-head.json").read_text())["seq"] == len(found)
    assert made.head is not None
    assert made.head.seq == len(found)


def test_the_head_is_kept_soon_though_nothing_follows(
    log: tuple[AuditLog, DatabaseWriter, Callable[[int], None]], tmp_path: Path
) -> None:
    made, writer, set_clock_s = log

    def kept() -> int:
        return int(json.loads((tmp_path / "audit-head.json").read_text())["seq"])

    made.append("x", {})
    writer.start()
    writer.submit(lambda _: None).result(timeout=PATIENCE_S)
    assert kept() == 1
    made.append("x", {})
    writer.submit(lambda _: None).result(timeout=PATIENCE_S)
    assert kept() == 1  # not twice a second
    set_clock_s(1)
    wait_until(lambda: kept() == 2)
    writer.stop()


def test_what_could_not_be_queued_is_counted(
    log: tuple[AuditLog, DatabaseWriter, Callable[[int], None]], tmp_path: Path
) -> None:
    made, writer, _ = log
    for number in range(305):
        made.append("x", {"n": number})
    assert writer.is_failing
    writer.start()
    wait_until(lambda: made.head is not None and made.head.seq == 300)
    made.append("y", {})
    writer.stop()
    assert events(tmp_path)[-2]["fields"] == {"count": 5}

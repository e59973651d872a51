"""SQLite keeps values of any type: does a row that somebody changed harm anybody but its owner?"""

import contextlib
import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import Engine

from gateway.auth import TenantLimits, hash_key
from gateway.db import ApiKeyStore, TenantStore
from gateway.db.engine import writing
from gateway.db.receipts import (
    Intent,
    find_receipt,
    insert_intent,
    sign_unfinished,
    store_receipt,
    try_intent,
    unfinished,
)
from gateway.keys_cli import keys

ID, OTHER_ID = "a" * 32, "b" * 32


def execute(engine: Engine, statement: str) -> None:
    with contextlib.closing(sqlite3.connect(str(engine.url.database))) as database:
        database.execute(statement)
        database.commit()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE api_key SET scopes = x'00' WHERE id = '{id}'",
        "UPDATE api_key SET tenant = x'00' WHERE id = '{id}'",
        "UPDATE api_key SET priority = 'x' WHERE id = '{id}'",
        "UPDATE api_key SET priority = 1.5 WHERE id = '{id}'",
        "UPDATE api_key SET expires_ns = 'x' WHERE id = '{id}'",
        "UPDATE api_key SET id = x'00' WHERE id = '{id}'",
        "UPDATE tenant_limits SET open_requests = 'x'",
    ],
)
def test_a_damaged_key_gives_no_right(engine: Engine, tmp_path: Path, change: str) -> None:
    store = ApiKeyStore(engine)
    key = store.create(label="l", tenant="t", now_ns=1, expires_ns=2**62)
    other = store.create(label="l", tenant="u", now_ns=2)
    TenantStore(engine).set_limits("t", TenantLimits(open_requests=1), now_ns=3)
    assert store.find(hash_key(key)) is not None
    execute(engine, change.format(id=store.list_keys()[0].id))
    assert store.find(hash_key(key)) is None
    assert store.find(hash_key(other)) is not None
    command = "limits" if "limits" in change else "list"
    listed = CliRunner().invoke(keys, [command, "--state-dir", str(tmp_path)])
    assert (listed.exit_code, "[database_unavailable]" in listed.output) == (1, True)
    assert "restore a backup" in listed.output


def intent(receipt_id: str = ID) -> Intent:
    return Intent(id=receipt_id, key_id="k", kid="dead", endpoint="/v1/x", opened_ns=1)


@pytest.mark.parametrize("body", ["'x'", "7", "CAST(x'ff' AS TEXT)"])
def test_what_is_no_receipt_is_not_served(engine: Engine, body: str) -> None:
    with writing(engine).begin() as connection:
        store_receipt(connection, intent(), b"{}")
    assert find_receipt(engine, ID, key_id="k") == b"{}"
    execute(engine, f"UPDATE receipt SET body = {body}")  # noqa: S608 - ours
    assert find_receipt(engine, ID, key_id="k") is None


def test_an_intent_that_is_none_keeps_no_other_from_being_signed(engine: Engine) -> None:
    with writing(engine).begin() as connection:
        insert_intent(connection, intent())
        insert_intent(connection, intent(OTHER_ID))
    execute(engine, "UPDATE receipt SET endpoint = x'00' WHERE id LIKE 'a%'")
    with writing(engine).begin() as connection:
        sign_unfinished(
            connection, kid="new", before_ns=2, sign=lambda found: found.endpoint.encode()
        )
    assert find_receipt(engine, ID, key_id="k") is None
    assert find_receipt(engine, OTHER_ID, key_id="k") == b"/v1/x"


def test_unfinished_requests_are_found_without_reading_the_finished(engine: Engine) -> None:
    dialect = engine.dialect
    query = unfinished(kid="k", before_ns=1).compile(
        dialect=dialect, compile_kwargs={"literal_binds": True}
    )
    with engine.connect() as connection:
        (step,) = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}").all()
    assert "USING INDEX ix_receipt_unfinished" in step.detail


def test_a_trial_leaves_nothing_behind(engine: Engine) -> None:
    with writing(engine).begin() as connection:
        try_intent(connection, intent())
        assert connection.exec_driver_sql("SELECT count(*) FROM receipt").scalar() == 0

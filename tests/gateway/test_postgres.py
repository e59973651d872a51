"""Does everything that gateway.db keeps live in PostgreSQL as well as in SQLite?"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from click.testing import CliRunner
from sqlalchemy import Engine, inspect, text
from sqlalchemy.exc import OperationalError

import gateway.db.engine as db_engine
from gateway.audit_chain import verify_chain
from gateway.audit_cli import audit as audit_command
from gateway.auth import Scope, TenantLimits, hash_key
from gateway.db import ApiKeyStore, KeyNotFound, TenantStore, audit, migrate, open_engine
from gateway.db.models import Base
from telemetry.db.engine import _MIGRATION_LOCK
from tests.gateway.support import make_key, running_stack
from tests.support.patience import PATIENCE_S
from tests.support.postgres import fresh_database, running_postgres


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with running_postgres() as url:
        yield url


@pytest.fixture
def url(server: str) -> Iterator[str]:
    with fresh_database(server) as url:
        yield url


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    engine = open_engine(url)
    migrate(engine)
    yield engine
    engine.dispose()


def test_migrations_build_the_models_and_can_be_undone(engine: Engine) -> None:
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
    config = Config()
    config.set_main_option("script_location", str(db_engine._MIGRATIONS))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
    assert inspect(engine).get_table_names() == ["alembic_version"]


def test_several_processes_may_migrate_at_once(url: str) -> None:
    def migrate_once(_: int) -> None:
        engine = open_engine(url)
        migrate(engine)
        engine.dispose()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(migrate_once, range(4)))


def test_keys_and_limits(engine: Engine) -> None:
    keys, tenants = ApiKeyStore(engine), TenantStore(engine)
    key = keys.create(label="ci", tenant="acme", now_ns=1, scopes=[Scope.CHAT], priority=-2)
    tenants.set_limits("acme", TenantLimits(tokens_per_minute=5), now_ns=1)
    found = keys.find(hash_key(key))
    assert found is not None
    assert found.key_sha256 == hash_key(key)
    assert (found.principal.priority, found.principal.scopes) == (-2, frozenset({Scope.CHAT}))
    assert found.principal.limits == TenantLimits(tokens_per_minute=5)
    assert keys.revoke(found.principal.key_id, now_ns=2)
    assert keys.find(hash_key(key)) is None


def test_of_two_rotations_at_once_with_no_grace_one_makes_a_key(engine: Engine) -> None:
    keys = ApiKeyStore(engine)
    keys.create(label="ci", tenant="acme", now_ns=1)
    key_id = keys.list_keys()[0].id

    def rotate(_: int) -> int:
        try:
            keys.rotate(key_id, now_ns=2, grace_ns=0)
        except KeyNotFound:
            return 0
        return 1

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(rotate, range(4))) == 1
    assert len(keys.list_keys()) == 2


def test_a_server_that_was_restarted_is_connected_to_again(url: str, engine: Engine) -> None:
    keys = ApiKeyStore(engine)
    keys.list_keys()
    other = open_engine(url)
    with other.connect() as connection:
        connection.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND datname = 'fresh'"
            )
        )
    other.dispose()
    assert keys.list_keys() == []


def test_a_server_that_does_not_answer_is_given_up(
    url: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(db_engine, "_ANSWER_TIMEOUT_MS", 200)
    impatient = open_engine(url)
    with impatient.connect() as connection:
        driver: Any = connection.connection.driver_connection
        given = driver.info.get_parameters()
        assert (given["tcp_user_timeout"], given["keepalives_idle"]) == ("200", "5")
    with engine.connect() as other:
        other.execute(text("LOCK TABLE api_key"))
        with pytest.raises(OperationalError):
            ApiKeyStore(impatient).list_keys()
    assert ApiKeyStore(impatient).list_keys() == []
    impatient.dispose()


def test_a_migration_may_take_long(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(db_engine, "_ANSWER_TIMEOUT_MS", 200)
    holder, engine = open_engine(url), open_engine(url)
    with ThreadPoolExecutor(1) as pool:
        with holder.connect() as connection:
            connection.execute(text("SELECT pg_advisory_xact_lock(:n)"), {"n": _MIGRATION_LOCK})
            migrating = pool.submit(migrate, engine)
            time.sleep(0.6)
            assert not migrating.done()
        migrating.result(timeout=PATIENCE_S)
    holder.dispose()
    engine.dispose()


def test_a_gateway_answers_and_keeps_its_receipts(tmp_path: Path, url: str) -> None:
    with running_stack(tmp_path, database_url=url) as stack:
        answer = stack.chat()
        assert answer.status_code == 200
        receipt = stack.client.get(f"/v1/receipts/{answer.headers['starshade-receipt']}")
        assert receipt.status_code == 200
        other = {"authorization": f"Bearer {make_key(stack.config, tenant='other')}"}
        hidden = stack.client.get(
            f"/v1/receipts/{answer.headers['starshade-receipt']}", headers=other
        )
        assert hidden.status_code == 404
    assert not (tmp_path / "gateway.db").exists()


def test_the_audit_log_is_one_chain_whoever_appends(
    tmp_path: Path, url: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def append_some(process: int) -> None:
        for number in range(20):
            with db_engine.writing(engine).begin() as connection:
                fields = {"process": process, "n": number}
                audit.append(connection, kind="x", fields=fields, at=datetime.now(UTC))  # noqa: TID251

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(append_some, range(4)))
    with engine.connect() as connection:
        assert len(verify_chain(audit.read_all(connection))) == 80
    monkeypatch.setenv("STARSHADE_DATABASE_URL", url)
    result = CliRunner().invoke(audit_command, ["verify", "--state-dir", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert result.output.startswith("WHOLE: 80 events")

"""Does the doctor see what is wrong with files, and leave them as they are?"""

import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gateway.config import StarshadeConfig
from gateway.db import ApiKeyStore, migrate, open_engine
from gateway.doctor import databases, installation
from gateway.tls import ensure_certificates
from tests.gateway.support import make_config

NOW = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def config(tmp_path: Path) -> StarshadeConfig:
    """With a model file that starts like one."""
    model = tmp_path / "tiny.gguf"
    model.write_bytes(b"GGUF" + bytes(996))
    return make_config(tmp_path / "state", worker__model=str(model))


def test_a_set_up_that_was_never_started_is_well_and_stays_absent(config: StarshadeConfig) -> None:
    findings = [
        installation.state_folder(config),
        installation.private_files(config),
        installation.worker_socket(config),
        installation.certificate(config, NOW),
        installation.policy(config),
        installation.vendors_authorities(config),
        installation.model(config),
        databases.gateway_database(config),
        databases.audit_log(config),
        databases.telemetry_database(config),
    ]
    assert [f.name for f in findings if f.outcome != "ok"] == []
    assert not config.state_dir.exists()


def test_a_state_folder_that_is_a_file_is_wrong(config: StarshadeConfig) -> None:
    config.state_dir.touch()
    assert installation.state_folder(config).code == "state_not_writable"


def test_a_key_that_others_can_read_is_named_with_the_command(config: StarshadeConfig) -> None:
    config.state_dir.mkdir(mode=0o700)
    key = config.paths.dev_api_key
    key.touch()
    key.chmod(0o644)  # whatever the umask is
    finding = installation.private_files(config)
    assert (finding.outcome, finding.code) == ("wrong", "not_private")
    assert finding.next_step == f"chmod go= {key}"
    key.chmod(0o600)
    assert installation.private_files(config).outcome == "ok"


def test_a_certificate_is_told_by_its_dates(config: StarshadeConfig) -> None:
    config.paths.tls_dir.mkdir(parents=True)
    ensure_certificates(config.paths, ("localhost",), at=NOW)
    assert installation.certificate(config, NOW).outcome == "ok"
    later = NOW + timedelta(days=398)
    assert installation.certificate(config, later).code == "certificate_expired"


def test_a_certificate_of_another_authority_is_wrong(
    config: StarshadeConfig, tmp_path: Path
) -> None:
    other = make_config(tmp_path / "other")
    for each in (config, other):
        each.paths.tls_dir.mkdir(parents=True)
        ensure_certificates(each.paths, ("localhost",), at=NOW)
    config.paths.ca_cert.write_bytes(other.paths.ca_cert.read_bytes())
    assert installation.certificate(config, NOW).code == "certificate_unusable"


def test_an_unreadable_policy_is_wrong(tmp_path: Path) -> None:
    broken = tmp_path / "policy.toml"
    broken.write_text("cpu = 7")
    config = make_config(tmp_path, policy=str(broken))
    assert installation.policy(config).code == "policy_invalid"


def test_a_model_of_the_catalogue_is_hashed(tmp_path: Path) -> None:
    from gateway.models import KNOWN_MODELS

    source = KNOWN_MODELS[0]
    config = make_config(tmp_path, worker__model=source.name)
    assert installation.model(config).code == "model_missing"
    config.paths.models_dir.mkdir(parents=True)
    with (config.paths.models_dir / source.file).open("wb") as file:
        file.write(b"GGUF")
        file.truncate(source.size_bytes)  # sparse
    assert installation.model(config).code == "model_digest_mismatch"


def test_a_model_that_is_none_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "notes.gguf").write_text("no model")
    config = make_config(tmp_path, worker__model=str(tmp_path / "notes.gguf"))
    finding = installation.model(config)
    assert (finding.outcome, finding.code) == ("wrong", "model_file_unusable")


def test_little_memory_is_a_warning(config: StarshadeConfig, tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 99 kB\nMemAvailable:    1000 kB\n")
    assert installation.memory(config, root=tmp_path).code == "memory_short"
    (tmp_path / "proc/meminfo").write_text("MemAvailable: 64000000 kB\n")
    assert installation.memory(config, root=tmp_path).outcome == "ok"


def test_a_container_s_limit_counts_as_well(config: StarshadeConfig, tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemAvailable: 64000000 kB\n")
    limit = tmp_path / "sys/fs/cgroup/memory.max"
    limit.parent.mkdir(parents=True)
    limit.write_text("1000000\n")
    assert installation.memory(config, root=tmp_path).code == "memory_short"
    limit.write_text("max\n")
    assert installation.memory(config, root=tmp_path).outcome == "ok"


def test_a_database_of_today_is_up_to_date(config: StarshadeConfig) -> None:
    config.state_dir.mkdir()
    engine = open_engine(config.database_url)
    migrate(engine)
    engine.dispose()
    finding = databases.gateway_database(config)
    assert finding.outcome == "ok"
    assert finding.found.endswith(", up to date")


def test_a_database_that_is_older_will_be_brought_up_to_date(config: StarshadeConfig) -> None:
    config.state_dir.mkdir()
    sqlite3.connect(config.paths.gateway_db).close()
    config.paths.gateway_db.touch()
    assert databases.gateway_database(config).found.endswith("at the start")


def test_a_database_of_a_newer_version_is_wrong(config: StarshadeConfig) -> None:
    config.state_dir.mkdir()
    with sqlite3.connect(config.paths.gateway_db) as connection:
        connection.execute("CREATE TABLE alembic_version (version_num TEXT)")
        connection.execute("INSERT INTO alembic_version VALUES ('v9999')")
    connection.close()
    assert databases.gateway_database(config).code == "database_newer"


def test_a_file_that_is_no_database_is_wrong_and_kept(config: StarshadeConfig) -> None:
    config.state_dir.mkdir()
    config.paths.gateway_db.write_bytes(b"not a database, but a text of some length" * 100)
    before = config.paths.gateway_db.read_bytes()
    assert databases.gateway_database(config).code == "database_unavailable"
    assert config.paths.gateway_db.read_bytes() == before


def test_the_password_of_a_database_is_not_shown(tmp_path: Path) -> None:
    url = "postgresql+psycopg://user:hunter2@127.0.0.1:1/db"
    finding = databases.gateway_database(make_config(tmp_path, database_url=url))
    assert finding.code == "database_unavailable"
    assert "hunter2" not in repr(finding)


def test_an_audit_log_that_was_changed_is_wrong(config: StarshadeConfig) -> None:
    assert databases.audit_log(config).found == "made at the first start"
    config.state_dir.mkdir()
    sqlite3.connect(config.paths.gateway_db).close()
    config.paths.gateway_db.touch()
    assert databases.audit_log(config).found == "made at the next start"
    engine = open_engine(config.database_url)
    migrate(engine)
    keys = ApiKeyStore(engine)
    for number in range(3):
        keys.create(label="l", tenant="t", now_ns=number + 1)
    engine.dispose()
    assert databases.audit_log(config).found.startswith("whole, 3 events")
    with sqlite3.connect(config.paths.gateway_db) as connection:
        connection.execute("DELETE FROM audit_event WHERE seq = 2")
    connection.close()
    finding = databases.audit_log(config)
    assert (finding.outcome, finding.code) == ("wrong", "audit_gap")
    config.paths.gateway_db.write_bytes(b"not a database, but a text of some length" * 100)
    assert databases.audit_log(config).code == "database_unavailable"

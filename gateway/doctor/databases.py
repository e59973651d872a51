"""Can the databases be opened and written, are the tables ours, and is the audit log whole?"""

from pathlib import Path
from typing import Final

from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, inspect, make_url
from sqlalchemy.exc import SQLAlchemyError

import gateway.db
import telemetry.db
from gateway.audit_chain import AuditBroken
from gateway.audit_check import require_whole
from gateway.config import StarshadeConfig
from gateway.db.engine import open_engine, writing
from gateway.db.models import AuditRow
from gateway.doctor.finding import Finding, ok, wrong

_OWN: Final = Path(gateway.db.__file__ or "").parent / "migrations"
_TELEMETRY: Final = Path(telemetry.db.__file__ or "").parent / "migrations"


def gateway_database(config: StarshadeConfig) -> Finding:
    """Keys, and what else the gateway has to remember."""
    return _database("gateway database", config.database_url, "database_url", _OWN)


def audit_log(config: StarshadeConfig) -> Finding:
    """Only its being whole; what it says is `starshade audit show`'s."""
    name, engine = "audit log", None
    parsed = make_url(config.database_url)
    if parsed.get_backend_name() == "sqlite" and not Path(str(parsed.database)).exists():
        return ok(name, "made at the first start")
    try:
        engine = open_engine(config.database_url)
        if not inspect(engine).has_table(AuditRow.__tablename__):
            return ok(name, "made at the next start")
        whole = require_whole(engine, config.paths.audit_head)
    except AuditBroken as err:
        return wrong(
            name,
            f"it was changed: {err}",
            code=err.code,
            next_step="compare with a backup; believe no event from there on",
        )
    except (SQLAlchemyError, ImportError) as err:
        return wrong(
            name,
            f"it cannot be read: {type(err).__name__}",
            code="database_unavailable",
            next_step="check database_url",
        )
    finally:
        if engine is not None:
            engine.dispose()
    return ok(name, f"whole, {whole.num_events} events, {whole.num_receipts} receipts have seen it")


def telemetry_database(config: StarshadeConfig) -> Finding:
    """Spans, requests and runs."""
    url = config.observatory.database_url
    return _database("telemetry database", url, "observatory.database_url", _TELEMETRY)


def _database(name: str, url: str, key: str, migrations: Path) -> Finding:
    """The URL is not shown: it may hold a password."""
    parsed = make_url(url)
    is_sqlite = parsed.get_backend_name() == "sqlite"
    where = str(parsed.database) if is_sqlite else parsed.get_backend_name()
    if is_sqlite and not Path(str(parsed.database)).exists():
        return ok(name, f"{where}, made at the first start")
    engine = None
    try:
        engine = open_engine(url)
        revision = _revision(engine)
    except (SQLAlchemyError, ImportError) as err:  # ImportError: no driver for PostgreSQL
        return wrong(
            name,
            f"{where} cannot be used: {type(err).__name__}",
            code="database_unavailable",
            next_step=f"check {key}, that the file or server behind it is sound, and the disk",
        )
    finally:
        if engine is not None:
            engine.dispose()
    scripts = ScriptDirectory(str(migrations))
    known = {script.revision for script in scripts.walk_revisions()}
    if revision is not None and revision not in known:
        return wrong(
            name,
            f"{where} has tables of a newer version ({revision})",
            code="database_newer",
            next_step=f"install the Starshade that made it, or name another database in {key}",
        )
    is_newest = revision == scripts.get_current_head()
    return ok(name, f"{where}, {'up to date' if is_newest else 'brought up to date at the start'}")


def _revision(engine: Engine) -> str | None:
    """The schema's, read under a write lock that is given back at once."""
    with writing(engine).connect() as connection, connection.begin() as transaction:
        revision = MigrationContext.configure(connection).get_current_revision()
        transaction.rollback()
    return revision

"""Does the migrated schema equal the models, and may it be migrated twice and back?"""

from pathlib import Path

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import inspect

import gateway.db.engine as db_engine
from gateway.db import migrate, open_engine
from gateway.db.models import Base


def test_migrations_build_the_models(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/gateway.db")
    migrate(engine)
    migrate(engine)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
    engine.dispose()


def test_the_last_migration_can_be_undone(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/gateway.db")
    migrate(engine)
    config = Config()
    config.set_main_option("script_location", str(db_engine._MIGRATIONS))
    with db_engine.writing(engine).begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "base")
    assert inspect(engine).get_table_names() == ["alembic_version"]
    engine.dispose()

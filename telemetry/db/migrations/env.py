"""Alembic's entry: where do migrations run?  On the connection that holds the lock."""

from alembic import context

from telemetry.db.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    transactional_ddl=True,
)
context.run_migrations()

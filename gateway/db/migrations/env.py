"""How does Alembic reach gateway.db?  Through the connection that `migrate` hands it."""

from alembic import context

from gateway.db.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,
)
context.run_migrations()

"""How does telemetry.db come from any older shape to today's?  Alembic, forward only, at open."""

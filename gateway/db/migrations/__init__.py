"""Alembic's scripts for gateway.db."""

"""Receipts of requests, and the audit log."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "receipt",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("key_id", sa.String(32), nullable=False),
        sa.Column("kid", sa.String(64), nullable=False),
        sa.Column("endpoint", sa.String(64), nullable=False),
        sa.Column("opened_ns", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=True),
    )
    op.create_index("ix_receipt_opened_ns", "receipt", ["opened_ns"])
    op.create_table(
        "audit_event",
        sa.Column("seq", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("event", sa.LargeBinary(), nullable=False),
        sa.Column("sha256", sa.LargeBinary(32), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("audit_event")
    op.drop_table("receipt")

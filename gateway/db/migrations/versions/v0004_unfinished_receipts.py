"""A way to the requests without a receipt that does not lead past all others."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_UNFINISHED = sa.text("body IS NULL")


def upgrade() -> None:
    op.create_index(
        "ix_receipt_unfinished",
        "receipt",
        ["opened_ns"],
        sqlite_where=_UNFINISHED,
        postgresql_where=_UNFINISHED,
    )


def downgrade() -> None:
    op.drop_index("ix_receipt_unfinished", "receipt")

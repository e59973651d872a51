"""What a key may do and until when, and what a tenant may use."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_BEFORE_SCOPES = "chat,embeddings"  # what every key could do, or could have done
_NO_PRIORITY = "0"


def upgrade() -> None:
    with op.batch_alter_table("api_key") as table:
        table.add_column(
            sa.Column("scopes", sa.String(128), nullable=False, server_default=_BEFORE_SCOPES)
        )
        table.add_column(
            sa.Column("priority", sa.Integer(), nullable=False, server_default=_NO_PRIORITY)
        )
        table.add_column(sa.Column("expires_ns", sa.BigInteger(), nullable=True))
    op.create_table(
        "tenant_limits",
        sa.Column("tenant", sa.String(128), primary_key=True),
        sa.Column("requests_per_minute", sa.Integer(), nullable=True),
        sa.Column("tokens_per_minute", sa.Integer(), nullable=True),
        sa.Column("open_requests", sa.Integer(), nullable=True),
    )


def downgrade() -> None:
    op.drop_table("tenant_limits")
    with op.batch_alter_table("api_key") as table:
        for name in ("expires_ns", "priority", "scopes"):
            table.drop_column(name)

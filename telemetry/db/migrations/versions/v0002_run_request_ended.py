"""When a load test's request ended: E2E and TPOT are defined by it, not by the last token."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; older rows do not know."""
    op.add_column("run_request", sa.Column("ended_ns", sa.BigInteger(), nullable=True))

"""First tables: span, request, attestation, run, run_request."""

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


_Kind = Callable[[], sa.types.TypeEngine[Any]]


def _columns(kind: _Kind, names: str, *, null: bool = False) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind(), nullable=null) for name in names.split()]


def upgrade() -> None:
    """Create every table."""
    op.create_table(
        "span",
        *_columns(sa.LargeBinary, "trace_id span_id"),
        *_columns(sa.LargeBinary, "parent_id", null=True),
        *_columns(sa.String, "name kind status"),
        *_columns(sa.String, "service instance", null=True),
        *_columns(sa.BigInteger, "started_ns duration_ns"),
        *_columns(sa.JSON, "attributes"),
        sa.PrimaryKeyConstraint("trace_id", "span_id", name="pk_span"),
    )
    op.create_index("ix_span_started_ns", "span", ["started_ns"])
    op.create_table(
        "request",
        *_columns(sa.LargeBinary, "trace_id span_id"),
        *_columns(sa.BigInteger, "started_ns e2e_ns"),
        *_columns(sa.BigInteger, "ttft_ns tpot_ns itl_count itl_sum_ns itl_max_ns", null=True),
        *_columns(sa.BigInteger, "status prompt_tokens cached_tokens", null=True),
        *_columns(sa.BigInteger, "output_tokens chunks", null=True),
        *_columns(sa.LargeBinary, "gap_sketch", null=True),
        *_columns(sa.String, "run_id model tenant worker error_type", null=True),
        *_columns(sa.Boolean, "stream", null=True),
        sa.PrimaryKeyConstraint("trace_id", "span_id", name="pk_request"),
    )
    op.create_index("ix_request_started_ns", "request", ["started_ns"])
    op.create_index("ix_request_run_id", "request", ["run_id"])
    op.create_table(
        "attestation",
        *_columns(sa.LargeBinary, "trace_id span_id"),
        *_columns(sa.String, "worker_id tier"),
        *_columns(sa.String, "code tee trust_anchor policy policy_sha256", null=True),
        *_columns(sa.String, "verdict_id weights_sha256", null=True),
        *_columns(sa.Boolean, "simulated", null=True),
        *_columns(sa.BigInteger, "appraised_ns"),
        *_columns(sa.BigInteger, "not_after_ns", null=True),
        sa.PrimaryKeyConstraint("trace_id", "span_id", name="pk_attestation"),
    )
    op.create_index(
        "ix_attestation_worker_id_appraised_ns", "attestation", ["worker_id", "appraised_ns"]
    )
    op.create_table(
        "run",
        *_columns(sa.String, "id label profile config_json"),
        *_columns(sa.BigInteger, "started_ns ended_ns"),
        *_columns(sa.Boolean, "valid"),
        *_columns(sa.JSON, "invalid_reasons"),
        sa.PrimaryKeyConstraint("id", name="pk_run"),
    )
    op.create_index("ix_run_started_ns", "run", ["started_ns"])
    op.create_table(
        "run_request",
        *_columns(sa.String, "run_id phase"),
        *_columns(sa.BigInteger, "seq intended_ns"),
        *_columns(sa.LargeBinary, "trace_id gap_sketch", null=True),
        *_columns(sa.BigInteger, "dispatched_ns first_byte_ns first_token_ns", null=True),
        *_columns(sa.BigInteger, "last_token_ns max_gap_ns status", null=True),
        *_columns(sa.BigInteger, "prompt_tokens output_tokens cached_tokens chunks", null=True),
        *_columns(sa.String, "error_type", null=True),
        sa.PrimaryKeyConstraint("run_id", "seq", name="pk_run_request"),
    )

"""Which tables hold what we know?  Times are integer ns, ids are bytes, no ratio is stored.

The migrations create these tables; a test holds both to the same shape.
"""

from sqlalchemy import JSON, BigInteger, Index, LargeBinary, MetaData, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """Root of all tables of telemetry.db."""

    metadata = MetaData(
        naming_convention={"pk": "pk_%(table_name)s", "ix": "ix_%(column_0_label)s"}
    )
    type_annotation_map = {int: BigInteger, str: String, bytes: LargeBinary}  # noqa: RUF012


class SpanRow(Base):
    """One span as it came, after the allow-list."""

    __tablename__ = "span"
    __table_args__ = (Index("ix_span_started_ns", "started_ns"),)

    trace_id: Mapped[bytes] = mapped_column(primary_key=True)
    span_id: Mapped[bytes] = mapped_column(primary_key=True)
    parent_id: Mapped[bytes | None]
    name: Mapped[str]
    kind: Mapped[str]
    started_ns: Mapped[int]
    duration_ns: Mapped[int]
    status: Mapped[str]
    service: Mapped[str | None]
    instance: Mapped[str | None]
    attributes: Mapped[dict[str, object]] = mapped_column(JSON)


class RequestRow(Base):
    """One request, from the gateway's root span."""

    __tablename__ = "request"
    __table_args__ = (
        Index("ix_request_started_ns", "started_ns"),
        Index("ix_request_run_id", "run_id"),
    )

    trace_id: Mapped[bytes] = mapped_column(primary_key=True)
    span_id: Mapped[bytes] = mapped_column(primary_key=True)
    run_id: Mapped[str | None]
    started_ns: Mapped[int]
    e2e_ns: Mapped[int]
    ttft_ns: Mapped[int | None]
    tpot_ns: Mapped[int | None]
    itl_count: Mapped[int | None]
    itl_sum_ns: Mapped[int | None]
    itl_max_ns: Mapped[int | None]
    gap_sketch: Mapped[bytes | None]
    model: Mapped[str | None]
    tenant: Mapped[str | None]
    worker: Mapped[str | None]
    status: Mapped[int | None]
    error_type: Mapped[str | None]
    stream: Mapped[bool | None]
    prompt_tokens: Mapped[int | None]
    cached_tokens: Mapped[int | None]
    output_tokens: Mapped[int | None]
    chunks: Mapped[int | None]


class AttestationRow(Base):
    """One appraisal of one worker, from an "attest {worker}" span."""

    __tablename__ = "attestation"
    __table_args__ = (Index("ix_attestation_worker_id_appraised_ns", "worker_id", "appraised_ns"),)

    trace_id: Mapped[bytes] = mapped_column(primary_key=True)
    span_id: Mapped[bytes] = mapped_column(primary_key=True)
    worker_id: Mapped[str]
    tier: Mapped[str]
    code: Mapped[str | None]
    tee: Mapped[str | None]
    simulated: Mapped[bool | None]
    trust_anchor: Mapped[str | None]
    policy: Mapped[str | None]
    policy_sha256: Mapped[str | None]
    verdict_id: Mapped[str | None]
    weights_sha256: Mapped[str | None]
    appraised_ns: Mapped[int]
    not_after_ns: Mapped[int | None]


class RunRow(Base):
    """One load-test run; written last, so that its presence means its requests are all there."""

    __tablename__ = "run"
    __table_args__ = (Index("ix_run_started_ns", "started_ns"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    label: Mapped[str]
    profile: Mapped[str]
    config_json: Mapped[str]
    started_ns: Mapped[int]
    ended_ns: Mapped[int]
    valid: Mapped[bool]
    invalid_reasons: Mapped[list[str]] = mapped_column(JSON)


class RunRequestRow(Base):
    """One request of a run, as its client saw it."""

    __tablename__ = "run_request"

    run_id: Mapped[str] = mapped_column(primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True)
    trace_id: Mapped[bytes | None]
    phase: Mapped[str]
    intended_ns: Mapped[int]
    dispatched_ns: Mapped[int | None]
    first_byte_ns: Mapped[int | None]
    first_token_ns: Mapped[int | None]
    last_token_ns: Mapped[int | None]
    ended_ns: Mapped[int | None]
    prompt_tokens: Mapped[int | None]
    output_tokens: Mapped[int | None]
    cached_tokens: Mapped[int | None]
    chunks: Mapped[int | None]
    max_gap_ns: Mapped[int | None]
    gap_sketch: Mapped[bytes | None]
    status: Mapped[int | None]
    error_type: Mapped[str | None]

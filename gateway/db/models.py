"""Which tables does gateway.db have?  Times are integer nanoseconds since the Unix epoch, UTC.

Readers of receipts and events check the types themselves, to say which one does not fit.
"""

from sqlalchemy import BigInteger, Index, LargeBinary, String, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from gateway.db.checked import CheckedBigInteger, CheckedBytes, CheckedInteger, CheckedText


class Base(DeclarativeBase):
    pass


class ReceiptRow(Base):
    """One request: an intent while `body` is null, then its signed receipt."""

    __tablename__ = "receipt"
    __table_args__ = (
        Index(
            "ix_receipt_unfinished",
            "opened_ns",
            sqlite_where=text("body IS NULL"),
            postgresql_where=text("body IS NULL"),
        ),
    )

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    key_id: Mapped[str] = mapped_column(String(32))
    kid: Mapped[str] = mapped_column(String(64))
    endpoint: Mapped[str] = mapped_column(String(64))
    opened_ns: Mapped[int] = mapped_column(BigInteger, index=True)
    body: Mapped[bytes | None] = mapped_column(LargeBinary)


class AuditRow(Base):
    """One event of the audit log; `sha256` covers `event`, which names its predecessor's."""

    __tablename__ = "audit_event"

    seq: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    event: Mapped[bytes] = mapped_column(LargeBinary)
    sha256: Mapped[bytes] = mapped_column(LargeBinary(32))


class ApiKeyRow(Base):
    """One API key: only its SHA-256 is stored."""

    __tablename__ = "api_key"

    id: Mapped[str] = mapped_column(CheckedText(32), primary_key=True)
    label: Mapped[str] = mapped_column(CheckedText(128))
    tenant: Mapped[str] = mapped_column(CheckedText(128))
    hash: Mapped[bytes] = mapped_column(CheckedBytes(32), unique=True)
    scopes: Mapped[str] = mapped_column(
        CheckedText(128)
    )  # names of gateway.auth.Scope, with commas
    priority: Mapped[int] = mapped_column(CheckedInteger)
    created_ns: Mapped[int] = mapped_column(CheckedBigInteger)
    expires_ns: Mapped[int | None] = mapped_column(CheckedBigInteger)
    revoked_ns: Mapped[int | None] = mapped_column(CheckedBigInteger)


class TenantLimitsRow(Base):
    """What one tenant may use; a NULL is the gateway's default. Consumption is not stored."""

    __tablename__ = "tenant_limits"

    tenant: Mapped[str] = mapped_column(CheckedText(128), primary_key=True)
    requests_per_minute: Mapped[int | None] = mapped_column(CheckedInteger)
    tokens_per_minute: Mapped[int | None] = mapped_column(CheckedInteger)
    open_requests: Mapped[int | None] = mapped_column(CheckedInteger)

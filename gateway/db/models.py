"""Which tables does gateway.db have?  Times are integer nanoseconds since the Unix epoch, UTC."""

from sqlalchemy import BigInteger, Integer, LargeBinary, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    pass


class ApiKeyRow(Base):
    """One API key: only its SHA-256 is stored."""

    __tablename__ = "api_key"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    label: Mapped[str] = mapped_column(String(128))
    tenant: Mapped[str] = mapped_column(String(128))
    hash: Mapped[bytes] = mapped_column(LargeBinary(32), unique=True)
    scopes: Mapped[str] = mapped_column(String(128))  # names of gateway.auth.Scope, with commas
    priority: Mapped[int] = mapped_column(Integer)
    created_ns: Mapped[int] = mapped_column(BigInteger)
    expires_ns: Mapped[int | None] = mapped_column(BigInteger)
    revoked_ns: Mapped[int | None] = mapped_column(BigInteger)


class TenantLimitsRow(Base):
    """What one tenant may use; a NULL is the gateway's default. Consumption is not stored."""

    __tablename__ = "tenant_limits"

    tenant: Mapped[str] = mapped_column(String(128), primary_key=True)
    requests_per_minute: Mapped[int | None] = mapped_column(Integer)
    tokens_per_minute: Mapped[int | None] = mapped_column(Integer)
    open_requests: Mapped[int | None] = mapped_column(Integer)

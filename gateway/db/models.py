"""Which tables does gateway.db have?  Times are integer nanoseconds since the Unix epoch, UTC."""

from sqlalchemy import BigInteger, LargeBinary, String
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
    created_ns: Mapped[int] = mapped_column(BigInteger)
    revoked_ns: Mapped[int | None] = mapped_column(BigInteger)

"""What may each tenant use?  Limits persist; what was consumed lives in gateway.quotas."""

from collections.abc import Mapping
from dataclasses import asdict

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from gateway.auth import TenantLimits, is_tenant_name
from gateway.db.engine import writing
from gateway.db.models import TenantLimitsRow

MAX_LIMIT = 1_000_000_000  # fits 32 bits, the column's


class TenantStore:
    """The tenant_limits table. Every method blocks on the database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def set_limits(self, tenant: str, limits: TenantLimits) -> None:
        """Replaces what was set; where nothing is left to set the row goes.

        Raises: ValueError for a name no tenant can have, or a limit outside 0 (none) to MAX_LIMIT.
        """
        if not is_tenant_name(tenant):
            raise ValueError("no tenant can have this name")
        if any(not 0 <= limit <= MAX_LIMIT for limit in asdict(limits).values() if limit):
            raise ValueError(f"a limit is 0 (no limit) to {MAX_LIMIT}")
        with Session(writing(self._engine)) as session, session.begin():
            row = session.get(TenantLimitsRow, tenant)
            if limits == TenantLimits():
                if row is not None:
                    session.delete(row)
                return
            if row is None:
                row = TenantLimitsRow(tenant=tenant)
                session.add(row)
            for name, limit in asdict(limits).items():
                setattr(row, name, limit)

    def limits(self, tenant: str) -> TenantLimits:
        with Session(self._engine) as session:
            return limits_of(session, tenant)

    def all_limits(self) -> Mapping[str, TenantLimits]:
        """Those of the tenants that have any of their own, by name."""
        query = select(TenantLimitsRow).order_by(TenantLimitsRow.tenant)
        with Session(self._engine) as session:
            return {row.tenant: _limits(row) for row in session.scalars(query)}


def limits_of(session: Session, tenant: str) -> TenantLimits:
    row = session.get(TenantLimitsRow, tenant)
    return TenantLimits() if row is None else _limits(row)


def _limits(row: TenantLimitsRow) -> TenantLimits:
    return TenantLimits(
        requests_per_minute=row.requests_per_minute,
        tokens_per_minute=row.tokens_per_minute,
        open_requests=row.open_requests,
    )

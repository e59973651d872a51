"""What may each tenant use?  Limits persist; what was consumed lives in gateway.quotas."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from gateway.auth import TenantLimits, is_tenant_name
from gateway.db import audit
from gateway.db.engine import writing
from gateway.db.models import TenantLimitsRow
from telemetry.metrics import NS_PER_S

MAX_LIMIT: Final = 1_000_000_000  # fits 32 bits, the column's


class TenantStore:
    """The tenant_limits table. Every method blocks on the database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def set_limits(self, tenant: str, limits: TenantLimits, *, now_ns: int) -> None:
        """Replaces what was set, and says so in the audit log; with nothing to set the row goes.

        Raises: ValueError for a name no tenant can have, or a limit outside 0 (none) to MAX_LIMIT.
        """
        if not is_tenant_name(tenant):
            raise ValueError("no tenant can have this name")
        if any(not 0 <= limit <= MAX_LIMIT for limit in asdict(limits).values() if limit):
            raise ValueError(f"a limit is 0 (no limit) to {MAX_LIMIT}")
        fields = {name: limit for name, limit in asdict(limits).items() if limit is not None}
        with Session(writing(self._engine)) as session, session.begin():
            audit.append(
                session.connection(),
                kind="limits_changed",
                fields={"tenant": tenant, **fields},
                at=datetime.fromtimestamp(now_ns / NS_PER_S, UTC),
            )
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

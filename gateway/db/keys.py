"""Which API keys exist?  The key itself is returned once, when it is made."""

import re
import secrets
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Engine, select, update
from sqlalchemy.orm import Session

from gateway.auth import KEY_PREFIX, Principal, StoredKey, hash_key, is_tenant_name
from gateway.db.engine import writing
from gateway.db.models import ApiKeyRow

_KEY_BYTES: Final = 32  # 43 URL-safe characters
_ID_BYTES: Final = 8
_LABEL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@ -]{0,127}")
_NAMED_OF: Final = "1 to 128 of A-Z a-z 0-9 . _ -"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """What may be shown of a key."""

    id: str
    label: str
    tenant: str
    created_ns: int
    revoked_ns: int | None


class ApiKeyStore:
    """The api_key table. Every method blocks on the database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def create(self, *, label: str, tenant: str, now_ns: int, key: str | None = None) -> str:
        """Stores a new key and returns it; only its hash is kept. `key` adopts a given one.

        Raises: ValueError for a label or tenant that is not 1 to 128 plain characters (a tenant's
        may stand in a span, a label's may also be space or @), or a key without the product's
        prefix.
        """
        if not _LABEL.fullmatch(label):
            raise ValueError(f"a label is {_NAMED_OF}, space and @; letter or digit first")
        if not is_tenant_name(tenant):
            raise ValueError(f"a tenant is {_NAMED_OF} and :; letter or digit first")
        if key is not None and not key.startswith(KEY_PREFIX):
            raise ValueError(f"a key starts with {KEY_PREFIX}")
        key = key or KEY_PREFIX + secrets.token_urlsafe(_KEY_BYTES)
        row = ApiKeyRow(
            id=secrets.token_hex(_ID_BYTES),
            label=label,
            tenant=tenant,
            hash=hash_key(key),
            created_ns=now_ns,
            revoked_ns=None,
        )
        with Session(writing(self._engine)) as session, session.begin():
            session.add(row)
        return key

    def find(self, key_sha256: bytes) -> StoredKey | None:
        query = select(ApiKeyRow).where(
            ApiKeyRow.hash == key_sha256, ApiKeyRow.revoked_ns.is_(None)
        )
        with Session(self._engine) as session:
            row = session.scalars(query).one_or_none()
            if row is None:
                return None
            principal = Principal(key_id=row.id, tenant=row.tenant)
            return StoredKey(principal=principal, key_sha256=row.hash)

    def list_keys(self) -> list[ApiKey]:
        """All keys, oldest first, revoked ones included."""
        query = select(ApiKeyRow).order_by(ApiKeyRow.created_ns, ApiKeyRow.id)
        with Session(self._engine) as session:
            return [_shown(row) for row in session.scalars(query)]

    def revoke(self, key_id: str, *, now_ns: int) -> bool:
        """True when the key existed and was live until now."""
        change = (
            update(ApiKeyRow)
            .where(ApiKeyRow.id == key_id, ApiKeyRow.revoked_ns.is_(None))
            .values(revoked_ns=now_ns)
        )
        with writing(self._engine).begin() as connection:
            return connection.execute(change).rowcount == 1


def _shown(row: ApiKeyRow) -> ApiKey:
    return ApiKey(
        id=row.id,
        label=row.label,
        tenant=row.tenant,
        created_ns=row.created_ns,
        revoked_ns=row.revoked_ns,
    )

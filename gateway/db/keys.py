"""Which API keys exist, and what may each do?  The key itself is returned once, when it is made."""

import logging
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from gateway.auth import (
    DEFAULT_SCOPES,
    KEY_PREFIX,
    Principal,
    Scope,
    StoredKey,
    hash_key,
    is_tenant_name,
)
from gateway.db import audit
from gateway.db.checked import RowDamaged
from gateway.db.engine import writing
from gateway.db.models import ApiKeyRow
from gateway.db.tenants import limits_of
from telemetry.metrics import NS_PER_S

_log = logging.getLogger(__name__)

MIN_PRIORITY: Final = -2
MAX_PRIORITY: Final = 2  # the engine's own range
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
    scopes: frozenset[Scope]
    priority: int
    created_ns: int
    expires_ns: int | None
    revoked_ns: int | None


class KeyNotFound(LookupError):
    """No live key has this id."""


class ApiKeyStore:
    """The api_key table. Every method blocks on the database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def create(
        self,
        *,
        label: str,
        tenant: str,
        now_ns: int,
        key: str | None = None,
        scopes: Iterable[Scope] = DEFAULT_SCOPES,
        priority: int = 0,
        expires_ns: int | None = None,
    ) -> str:
        """Stores a new key and returns it; only its hash is kept. `key` adopts a given one.

        Raises: ValueError for a label or tenant that is not 1 to 128 plain characters (a tenant's
        may stand in a span, a label's may also be space or @), a key without the product's prefix,
        no scope, a priority that the engine does not know, or an end that has passed.
        """
        if not _LABEL.fullmatch(label):
            raise ValueError(f"a label is {_NAMED_OF}, space and @; letter or digit first")
        if not is_tenant_name(tenant):
            raise ValueError(f"a tenant is {_NAMED_OF} and :; letter or digit first")
        if key is not None and not key.startswith(KEY_PREFIX):
            raise ValueError(f"a key starts with {KEY_PREFIX}")
        if not (named := ",".join(sorted(set(scopes)))):
            raise ValueError("a key has at least one scope")
        if not MIN_PRIORITY <= priority <= MAX_PRIORITY:
            raise ValueError(f"a priority is {MIN_PRIORITY} to {MAX_PRIORITY}")
        if expires_ns is not None and expires_ns <= now_ns:
            raise ValueError("a key ends after it begins")
        key = key or _new_key()
        row = ApiKeyRow(
            id=_new_id(),
            label=label,
            tenant=tenant,
            hash=hash_key(key),
            scopes=named,
            priority=priority,
            created_ns=now_ns,
            expires_ns=expires_ns,
            revoked_ns=None,
        )
        with Session(writing(self._engine)) as session, session.begin():
            session.add(row)
            _note(session, "key_created", row, at_ns=now_ns)
        return key

    def rotate(self, key_id: str, *, now_ns: int, grace_ns: int) -> str:
        """A new key with the old one's rights; the old one ends `grace_ns` from now, if not before.

        A key that was to live for some time is followed by one that lives as long. Raises:
        KeyNotFound when no key that may be used now has this id.
        """
        key = _new_key()
        with Session(writing(self._engine)) as session, session.begin():
            old = session.get(ApiKeyRow, key_id, with_for_update=True)
            if old is None or not _is_live(old, now_ns):
                raise KeyNotFound(key_id)
            lifetime_ns = None if old.expires_ns is None else old.expires_ns - old.created_ns
            new = ApiKeyRow(
                id=_new_id(),
                label=old.label,
                tenant=old.tenant,
                hash=hash_key(key),
                scopes=old.scopes,
                priority=old.priority,
                created_ns=now_ns,
                expires_ns=None if lifetime_ns is None else now_ns + lifetime_ns,
                revoked_ns=None,
            )
            session.add(new)
            _note(session, "key_rotated", new, at_ns=now_ns, replaces=old.id)
            end_ns = now_ns + grace_ns
            old.expires_ns = end_ns if old.expires_ns is None else min(old.expires_ns, end_ns)
        return key

    def find(self, key_sha256: bytes) -> StoredKey | None:
        """The unrevoked key with this hash, expired or not, with its tenant's limits.

        One whose row, or its tenant's, somebody damaged gives no right.
        """
        try:
            return self._find(key_sha256)
        except RowDamaged as err:
            _log.error("an API key's row is damaged, so the key is refused: %s", err)
            return None

    def _find(self, key_sha256: bytes) -> StoredKey | None:
        query = select(ApiKeyRow).where(
            ApiKeyRow.hash == key_sha256, ApiKeyRow.revoked_ns.is_(None)
        )
        with Session(self._engine) as session:
            row = session.scalars(query).one_or_none()
            if row is None:
                return None
            principal = Principal(
                key_id=row.id,
                tenant=row.tenant,
                scopes=_scopes(row),
                priority=row.priority,
                limits=limits_of(session, row.tenant),
            )
            return StoredKey(principal=principal, key_sha256=row.hash, expires_ns=row.expires_ns)

    def list_keys(self) -> list[ApiKey]:
        """All keys, oldest first, revoked and expired ones included."""
        query = select(ApiKeyRow).order_by(ApiKeyRow.created_ns, ApiKeyRow.id)
        with Session(self._engine) as session:
            return [_shown(row) for row in session.scalars(query)]

    def revoke(self, key_id: str, *, now_ns: int) -> bool:
        """True when the key existed and was not revoked until now."""
        with Session(writing(self._engine)) as session, session.begin():
            row = session.get(ApiKeyRow, key_id, with_for_update=True)
            if row is None or row.revoked_ns is not None:
                return False
            row.revoked_ns = now_ns
            _note(session, "key_revoked", row, at_ns=now_ns)
            return True


def _note(session: Session, kind: str, row: ApiKeyRow, *, at_ns: int, **more: str) -> None:
    """In the audit log, with the change or not at all."""
    fields = {"key": row.id, "tenant": row.tenant, "scopes": row.scopes, **more}
    at = datetime.fromtimestamp(at_ns / NS_PER_S, UTC)
    audit.append(session.connection(), kind=kind, fields=fields, at=at)


def _new_key() -> str:
    return KEY_PREFIX + secrets.token_urlsafe(_KEY_BYTES)


def _new_id() -> str:
    return secrets.token_hex(_ID_BYTES)


def _is_live(row: ApiKeyRow, now_ns: int) -> bool:
    return row.revoked_ns is None and (row.expires_ns is None or now_ns < row.expires_ns)


def _scopes(row: ApiKeyRow) -> frozenset[Scope]:
    """A name that this version does not know gives no right."""
    known = set(Scope)
    return frozenset(Scope(name) for name in row.scopes.split(",") if name in known)


def _shown(row: ApiKeyRow) -> ApiKey:
    return ApiKey(
        id=row.id,
        label=row.label,
        tenant=row.tenant,
        scopes=_scopes(row),
        priority=row.priority,
        created_ns=row.created_ns,
        expires_ns=row.expires_ns,
        revoked_ns=row.revoked_ns,
    )

"""Who sends this request, what may they do, and which cache salt follows from it?"""

import asyncio
import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from gateway.problems import GatewayError
from telemetry import semconv
from telemetry.redact import ALLOWED_ATTRIBUTES

KEY_PREFIX: Final = "sk-starshade-"
MAX_KEY_CHARS: Final = 256
CACHE_TTL_S: Final = 5.0  # a revoked key is refused at the latest after this
MAX_CACHED_KEYS: Final = 4096
MAX_LOOKUPS: Final = 4  # of keys that were good before; the process has CPUs + 4 threads
MAX_STRANGERS: Final = 64  # keys never seen that wait for their turn, one at a time
_TENANT_DIGEST_CHARS: Final = 16
_SALT_LABEL: Final = b"starshade/cache-salt/v1\x00"


class Scope(StrEnum):
    """What a key may be used for. Every live key may list the models."""

    CHAT = "chat"
    EMBEDDINGS = "embeddings"
    METRICS = "metrics"
    ADMIN = "admin"


DEFAULT_SCOPES: Final = frozenset({Scope.CHAT, Scope.EMBEDDINGS})


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantLimits:
    """What a tenant may use, all its keys together; None: the gateway's default."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    open_requests: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """The holder of a valid API key."""

    key_id: str
    tenant: str
    scopes: frozenset[Scope] = DEFAULT_SCOPES
    priority: int = 0  # in the engine's queue; higher goes first
    limits: TenantLimits = TenantLimits()

    def require(self, scope: Scope) -> None:
        """Raises: GatewayError `insufficient_scope`."""
        if scope not in self.scopes:
            raise GatewayError("insufficient_scope", f"This API key lacks the scope '{scope}'.")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredKey:
    """A key as the database knows it: its hash, never the key."""

    principal: Principal
    key_sha256: bytes
    expires_ns: int | None = None  # Unix time


class KeyFinder(Protocol):
    def find(self, key_sha256: bytes) -> StoredKey | None:
        """The unrevoked key with this hash, expired or not. Blocks on the database."""
        ...


class Authenticator:
    """Checks bearer keys against the database, remembering good ones for CACHE_TTL_S.

    Anybody can make up keys, and each costs a look-up. They wait for one another, never a key that
    was good before for them; beyond MAX_STRANGERS they are turned away.
    `clock_s` is monotonic, `unix_ns` tells the date: a cached key expires to the moment.
    """

    def __init__(
        self, keys: KeyFinder, *, clock_s: Callable[[], float], unix_ns: Callable[[], int]
    ) -> None:
        self._keys = keys
        self._clock_s = clock_s
        self._unix_ns = unix_ns
        self._cache: OrderedDict[bytes, tuple[float, StoredKey]] = OrderedDict()
        self._known = asyncio.Semaphore(MAX_LOOKUPS)
        self._unknown = asyncio.Semaphore(1)
        self._lookups: dict[bytes, asyncio.Task[StoredKey | None]] = {}

    async def authenticate(self, authorization: str | None) -> Principal:
        """Raises: GatewayError `invalid_api_key`, `api_key_expired`, `overloaded`."""
        key_sha256 = hash_key(_bearer_key(authorization))
        stored = self._remembered(key_sha256) or await self._found(key_sha256)
        if stored.expires_ns is not None and self._unix_ns() >= stored.expires_ns:
            raise GatewayError("api_key_expired", "This API key has expired.")
        return stored.principal

    def _remembered(self, key_sha256: bytes) -> StoredKey | None:
        until_s, stored = self._cache.get(key_sha256, (0.0, None))
        return stored if self._clock_s() < until_s else None

    async def _found(self, key_sha256: bytes) -> StoredKey:
        stored = await asyncio.shield(self._look_up(key_sha256))
        if stored is None or not hmac.compare_digest(stored.key_sha256, key_sha256):
            self._cache.pop(key_sha256, None)
            raise _refusal()
        self._cache[key_sha256] = (self._clock_s() + CACHE_TTL_S, stored)
        self._cache.move_to_end(key_sha256)
        if len(self._cache) > MAX_CACHED_KEYS:
            self._cache.popitem(last=False)
        return stored

    def _look_up(self, key_sha256: bytes) -> "asyncio.Task[StoredKey | None]":
        """Single-flight: who comes with a key that is looked up waits for that look-up."""
        running = self._lookups.get(key_sha256)
        if running is not None:
            return running
        is_known = key_sha256 in self._cache
        if not is_known and len(self._lookups) >= MAX_STRANGERS:
            raise GatewayError("overloaded", "Too many unknown API keys; retry shortly.")
        turns = self._known if is_known else self._unknown
        task = asyncio.ensure_future(self._ask(key_sha256, turns))
        self._lookups[key_sha256] = task
        task.add_done_callback(lambda done: self._forget(key_sha256, done))
        return task

    async def _ask(self, key_sha256: bytes, turns: asyncio.Semaphore) -> StoredKey | None:
        async with turns:
            return await asyncio.to_thread(self._keys.find, key_sha256)

    def _forget(self, key_sha256: bytes, done: "asyncio.Task[StoredKey | None]") -> None:
        del self._lookups[key_sha256]
        if not done.cancelled():
            done.exception()  # its waiters have it, if any are left


def hash_key(key: str) -> bytes:
    """Keys carry 256 random bits, so one unsalted SHA-256 is enough to store."""
    return hashlib.sha256(key.encode()).digest()


def cache_salt(secret: bytes, tenant: str) -> bytes:
    """The prefix-cache salt of a tenant, 32 bytes; tenants can neither choose nor learn it."""
    return hmac.new(secret, _SALT_LABEL + tenant.encode(), hashlib.sha256).digest()


def is_tenant_name(name: str) -> bool:
    """Whether a span may carry the name: every tenant made today has such a one."""
    return ALLOWED_ATTRIBUTES[semconv.TENANT_ID](name) is not None


def tenant_in_spans(tenant: str) -> str:
    """The tenant as telemetry knows it: by name, or by a digest where an old row's does not fit."""
    if is_tenant_name(tenant):
        return tenant
    digest = hashlib.sha256(tenant.encode("utf-8", "surrogatepass")).hexdigest()
    return f"sha256:{digest[:_TENANT_DIGEST_CHARS]}"


def _bearer_key(authorization: str | None) -> str:
    scheme, _, key = (authorization or "").partition(" ")
    key = key.strip()
    if scheme.lower() != "bearer" or not key.startswith(KEY_PREFIX) or len(key) > MAX_KEY_CHARS:
        raise _refusal()
    return key


def _refusal() -> GatewayError:
    return GatewayError("invalid_api_key", "Incorrect or missing API key.")

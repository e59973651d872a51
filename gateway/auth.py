"""Who sends this request, and which cache salt follows from it?"""

import asyncio
import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from gateway.problems import GatewayError
from telemetry import semconv
from telemetry.redact import ALLOWED_ATTRIBUTES

KEY_PREFIX: Final = "sk-starshade-"
MAX_KEY_CHARS: Final = 256
CACHE_TTL_S: Final = 5.0  # a revoked key is refused at the latest after this
MAX_CACHED_KEYS: Final = 4096
_TENANT_DIGEST_CHARS: Final = 16
_SALT_LABEL: Final = b"starshade/cache-salt/v1\x00"


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """The holder of a valid API key."""

    key_id: str
    tenant: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredKey:
    """A key as the database knows it: its hash, never the key."""

    principal: Principal
    key_sha256: bytes


class KeyFinder(Protocol):
    def find(self, key_sha256: bytes) -> StoredKey | None:
        """The unrevoked key with this hash. Blocks on the database."""
        ...


class Authenticator:
    """Checks bearer keys against the database, remembering good ones for CACHE_TTL_S."""

    def __init__(self, keys: KeyFinder, *, clock_s: Callable[[], float]) -> None:
        self._keys = keys
        self._clock_s = clock_s
        self._cache: OrderedDict[bytes, tuple[float, Principal]] = OrderedDict()

    async def authenticate(self, authorization: str | None) -> Principal:
        """Raises: GatewayError `invalid_api_key`."""
        key_sha256 = hash_key(_bearer_key(authorization))
        cached = self._cache.get(key_sha256)
        if cached is not None and self._clock_s() < cached[0]:
            return cached[1]
        stored = await asyncio.to_thread(self._keys.find, key_sha256)
        if stored is None or not hmac.compare_digest(stored.key_sha256, key_sha256):
            self._cache.pop(key_sha256, None)
            raise _refusal()
        self._cache[key_sha256] = (self._clock_s() + CACHE_TTL_S, stored.principal)
        self._cache.move_to_end(key_sha256)
        if len(self._cache) > MAX_CACHED_KEYS:
            self._cache.popitem(last=False)
        return stored.principal


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

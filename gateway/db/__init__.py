"""gateway.db: what must the gateway remember across restarts?

API keys, as hashes; the limits of tenants; receipts; the audit log.
"""

from gateway.db.engine import migrate, open_engine
from gateway.db.keys import ApiKey, ApiKeyStore, KeyNotFound
from gateway.db.tenants import TenantStore

__all__ = ["ApiKey", "ApiKeyStore", "KeyNotFound", "TenantStore", "migrate", "open_engine"]

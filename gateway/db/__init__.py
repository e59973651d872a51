"""gateway.db: what must the gateway remember across restarts?  Today: API keys, as hashes."""

from gateway.db.engine import migrate, open_engine
from gateway.db.keys import ApiKey, ApiKeyStore

__all__ = ["ApiKey", "ApiKeyStore", "migrate", "open_engine"]

"""Which API key do the snippets on this machine use?

`starshade up` keeps one in the state folder, readable by its owner alone. A gateway that was
started by `starshade serve` never does.
"""

from gateway.config import StarshadeConfig
from gateway.files import write_atomic

LABEL = "dev-api-key"
TENANT = "development"


def ensure_dev_key(config: StarshadeConfig, *, now_ns: int) -> None:
    """`dev-api-key` holds a key that the database accepts. Raises: OSError, SQLAlchemyError."""
    from gateway.auth import hash_key
    from gateway.db.engine import migrate, open_engine
    from gateway.db.keys import ApiKeyStore

    path = config.paths.dev_api_key
    engine = open_engine(config.database_url)
    try:
        migrate(engine)
        store = ApiKeyStore(engine)
        if path.is_file():
            kept = path.read_bytes().decode("ascii", "replace")  # damaged: no key has its hash
            if store.find(hash_key(kept.strip())) is not None:
                return
        key = store.create(label=LABEL, tenant=TENANT, now_ns=now_ns)
        write_atomic(path, key.encode())
    finally:
        engine.dispose()

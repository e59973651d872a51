"""Where does each file of this installation lie?"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """Where each file lies below the state folder (private, durable) and the cache folder."""

    state_dir: Path
    cache_dir: Path

    @property
    def ca_cert(self) -> Path:
        return self.state_dir / "ca.pem"

    @property
    def tls_dir(self) -> Path:
        return self.state_dir / "tls"

    @property
    def ca_key(self) -> Path:
        return self.tls_dir / "ca.key"

    @property
    def server_cert(self) -> Path:
        return self.tls_dir / "server.pem"

    @property
    def server_key(self) -> Path:
        return self.tls_dir / "server.key"

    @property
    def client_cert(self) -> Path:
        return self.tls_dir / "client.pem"

    @property
    def client_key(self) -> Path:
        return self.tls_dir / "client.key"

    @property
    def client_certificate(self) -> tuple[Path, Path] | None:
        """What tools of this machine show; it is there when the gateway wants to see one."""
        return (self.client_cert, self.client_key) if self.client_cert.is_file() else None

    @property
    def salt_key(self) -> Path:
        return self.tls_dir / "salt.key"

    @property
    def run_dir(self) -> Path:
        return self.state_dir / "run"

    @property
    def worker_socket(self) -> Path:
        return self.run_dir / "worker-0.sock"

    @property
    def up_lock(self) -> Path:
        return self.run_dir / "up.lock"

    @property
    def gateway_address(self) -> Path:
        return self.run_dir / "gateway.json"

    @property
    def observatory_address(self) -> Path:
        return self.run_dir / "observatory.json"

    @property
    def logs_dir(self) -> Path:
        return self.state_dir / "logs"

    @property
    def gateway_db(self) -> Path:
        return self.state_dir / "gateway.db"

    @property
    def telemetry_db(self) -> Path:
        return self.state_dir / "telemetry.db"

    @property
    def audit_head(self) -> Path:
        return self.state_dir / "audit-head.json"

    @property
    def dev_api_key(self) -> Path:
        return self.state_dir / "dev-api-key"

    @property
    def models_dir(self) -> Path:
        return self.cache_dir / "models"

    @property
    def collateral_dir(self) -> Path:
        return self.cache_dir / "collateral"

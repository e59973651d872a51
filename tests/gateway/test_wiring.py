"""Does a gateway start on damaged files, and does a worker start without the gateway's parts?"""

import subprocess
import sys
from pathlib import Path

import pytest

from gateway.app import GatewayApp
from gateway.attest import LiveAttestation
from tests.gateway.support import running_stack


@pytest.mark.parametrize("damage", [b"", b"short", bytes(100)])
def test_a_damaged_salt_is_made_anew(tmp_path: Path, damage: bytes) -> None:
    salt = tmp_path / "tls" / "salt.key"
    salt.parent.mkdir()
    salt.write_bytes(damage)
    with running_stack(tmp_path) as stack:
        assert stack.chat().status_code == 200
        assert stack.config.paths.salt_key.stat().st_size == 32


def test_all_workers_share_one_cache_and_attestation_fills_it(tmp_path: Path) -> None:
    socket = tmp_path / "run" / "worker-0.sock"
    workers = (f"unix:{socket}", f"unix:{tmp_path}/nobody.sock")
    with running_stack(tmp_path, gateway__workers=workers) as stack:
        app: GatewayApp = stack.gateway.app
        caches = []
        for node in app.services.directory.nodes:
            assert isinstance(node.attestation, LiveAttestation)
            caches.append(node.attestation.cache)

    assert len(caches) == 2
    assert caches[0] is caches[1]
    assert len(caches[0]) > 0


def test_a_worker_does_not_wait_for_what_the_gateway_alone_needs() -> None:
    code = """
import sys
import gateway.roles, gateway.worker.wiring
print({"sqlalchemy", "alembic", "httpx"} & set(sys.modules))
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "set()"

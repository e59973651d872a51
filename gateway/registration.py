"""Which workers are there, beside those of the configuration?  Those that an operator registers.

A registered worker is trusted no more than any other: it serves once it has attested. It is
forgotten when the gateway ends; whoever starts workers registers them anew.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from gateway import config_rules
from gateway.audit import WORKER_REGISTERED, WORKER_REMOVED, AuditLog
from gateway.problems import GatewayError
from gateway.sealed import UNIX_SCHEME
from gateway.worker_node import WorkerAttestation, WorkerNode
from gateway.workers import WorkerDirectory

MAX_WORKERS: Final = 256


class WorkerRegistry:
    """Adds to the directory and takes from it, by address."""

    def __init__(
        self,
        directory: WorkerDirectory,
        *,
        configured: Mapping[str, str],
        attestation: Callable[[str], WorkerAttestation],
        audit: AuditLog,
    ) -> None:
        """`configured`: address to name; `attestation` is of the worker at an address."""
        self._directory = directory
        self._names = dict(configured)
        self._attestation = attestation
        self._audit = audit

    def add(self, address: str) -> WorkerNode:
        """The worker at this address, which may have been there before.

        Raises: GatewayError `invalid_value`.
        """
        known = self._find(address)
        if known is not None:
            return known
        complaint = config_rules.worker_address(address)
        if complaint is not None:
            raise GatewayError("invalid_value", f"The address: {complaint}.", param="address")
        if len(self._names) >= MAX_WORKERS:
            raise GatewayError(
                "invalid_value", f"There are {MAX_WORKERS} workers already.", param="address"
            )
        name = self._names[address] = self._free_name(address)
        node = self._directory.add(name, self._attestation(address))
        self._audit.append(WORKER_REGISTERED, {"worker": name})
        return node

    async def remove(self, address: str) -> None:
        """Raises: GatewayError `node_not_found`."""
        node = self._find(address)
        if node is None:
            raise GatewayError("node_not_found", "No worker has this address.", param="address")
        del self._names[address]
        self._audit.append(WORKER_REMOVED, {"worker": node.id})
        await self._directory.remove(node)

    def _find(self, address: str) -> WorkerNode | None:
        name = self._names.get(address)
        return next((node for node in self._directory.nodes if node.name == name), None)

    def _free_name(self, address: str) -> str:
        taken, base = {node.name for node in self._directory.nodes}, name_of(address)
        names = (base, *(f"{base}:{number}" for number in range(1, MAX_WORKERS + 1)))
        return next(name for name in names if name not in taken)


def name_of(address: str) -> str:
    """`worker-0` of `unix:/run/worker-0.sock`, `127.0.0.1:9000` of `http://127.0.0.1:9000`."""
    if address.startswith(UNIX_SCHEME):
        return Path(address.removeprefix(UNIX_SCHEME)).stem
    return address.partition("://")[2]

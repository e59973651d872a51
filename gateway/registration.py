"""Which workers are there, beside those of the configuration?  Those that an operator registers.

A registered worker is trusted no more than any other: it serves once it has attested. It is
forgotten when the gateway ends; whoever starts workers registers them anew.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

from gateway import config_rules
from gateway.audit import WORKER_REGISTERED, WORKER_REMOVED, AuditLog
from gateway.problems import GatewayError
from gateway.worker_http import UNIX_SCHEME
from gateway.worker_node import WorkerAttestation, WorkerNode
from gateway.workers import WorkerDirectory

MAX_WORKERS: Final = 256
_NO_NAME: Final = re.compile(r"[^a-z0-9._-]+")
_MAX_NAME_CHARS: Final = 60  # and a number behind them: an identifier has 64


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
        taken = {node.name for node in self._directory.nodes}
        name = self._names[address] = _free_name(address, taken)
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


def named(addresses: Iterable[str]) -> dict[str, str]:
    """Address to name, one entry per address; equal names are told apart by a number."""
    names: dict[str, str] = {}
    for address in addresses:
        if address not in names:
            names[address] = _free_name(address, names.values())
    return names


def _free_name(address: str, taken: Collection[str]) -> str:
    """An identifier: `worker-0` of `unix:/run/worker-0.sock`, `127.0.0.1-9000` of
    `http://127.0.0.1:9000`.
    """
    if address.startswith(UNIX_SCHEME):
        text = Path(address.removeprefix(UNIX_SCHEME)).stem
    else:
        text = address.partition("://")[2]
    base = _NO_NAME.sub("-", text.lower()).strip("._-")[:_MAX_NAME_CHARS] or "worker"
    names = (base, *(f"{base}-{number}" for number in range(1, len(taken) + 1)))
    return next(name for name in names if name not in taken)

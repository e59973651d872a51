"""What does a client insist on, and is it so here?  Checked before anything of it is sent on.

``Starshade-Pin: mode=terminate, policy_sha256=HEX, keyset_sha256=HEX, weights_sha256=HEX``, each as
the client verified it; a name may occur several times, and then any of its values will do.
"""

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from gateway.problems import GatewayError
from gateway.worker.attester import Attester
from gateway.worker_node import Grant, WorkerNode

HEADER: Final = "starshade-pin"
MAX_PINS: Final = 32
_NAMES: Final = ("mode", "policy_sha256", "keyset_sha256", "weights_sha256")
PIN: Final = "(mode=(terminate|pass-through)|(policy|keyset|weights)_sha256=[0-9a-f]{64})"
_PIN: Final = re.compile(PIN)
Pins = Mapping[str, frozenset[str]]


def parse_pins(values: Iterable[str]) -> Pins:
    """The pins of all such fields; one whose name is not known cannot be met.

    Raises: GatewayError `invalid_value`.
    """
    items = [item.strip() for value in values for item in value.split(",")]
    pins: dict[str, set[str]] = {}
    for item in items:
        if len(items) > MAX_PINS or _PIN.fullmatch(item) is None:
            raise GatewayError(
                "invalid_value",
                f"A pin is one of {', '.join(_NAMES)} with its value, and there are at most "
                f"{MAX_PINS}.",
                param=HEADER,
            )
        name, _, value = item.partition("=")
        pins.setdefault(name, set()).add(value)
    return {name: frozenset(allowed) for name, allowed in pins.items()}


async def require_gateway_pins(pins: Pins, attester: Attester | None) -> None:
    """Of the gateway itself. Raises: GatewayError `session_not_accepted`."""
    if not pins.keys() - {"weights_sha256"}:
        return
    if attester is None:
        raise _unmet("The gateway attests nothing.")
    facts = await asyncio.to_thread(attester.facts)
    found: dict[str, str | None] = {"mode": facts.mode, "policy_sha256": facts.policy_sha256}
    if "keyset_sha256" in pins:
        found["keyset_sha256"] = await asyncio.to_thread(attester.keyset_sha256)
    _require(pins, found, of="gateway")


def require_worker_pins(
    pins: Pins, nodes: Sequence[WorkerNode], model: str, *, now: datetime
) -> None:
    """Of every worker that may answer. Raises: GatewayError `session_not_accepted`."""
    for node in nodes:
        if node.grant is not None and node.is_serving(now) and model in node.models:
            require_grant_pins(pins, node.grant)


def require_grant_pins(pins: Pins, grant: Grant) -> None:
    """Of the verdict that is sealed under. Raises: GatewayError `session_not_accepted`."""
    found = {
        "policy_sha256": grant.lease.policy_sha256,
        "weights_sha256": grant.facts.weights_sha256,
    }
    _require(pins, found, of="worker")


def _require(pins: Pins, found: Mapping[str, str | None], *, of: str) -> None:
    for name, value in found.items():
        if name in pins and value not in pins[name]:
            raise _unmet(f"The {of}'s {name} is another.")


def _unmet(message: str) -> GatewayError:
    return GatewayError("session_not_accepted", message)

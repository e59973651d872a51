"""Where may collateral come from that a worker did not bring?"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from gateway import config_rules as rules
from gateway.config_sources import Key


def _vendor(what: str) -> Key:
    """Secret: an address that is refused may hold a password."""
    doc = f"Instead of {what}; mirrors after it; `https`, or `http` on this machine."
    return Key(doc, rules.endorser_urls, secret=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollateralSettings:
    """Where what vouches for a worker's Evidence comes from when the worker did not bring it."""

    offline: Annotated[
        bool, Key("Whether to use what is cached alone and ask nobody for collateral.")
    ] = False
    pcs: Annotated[tuple[str, ...], _vendor("Intel's PCS, such as a PCCS")] = ()
    kds: Annotated[tuple[str, ...], _vendor("AMD's KDS")] = ()
    rim: Annotated[tuple[str, ...], _vendor("NVIDIA's RIM service")] = ()
    ocsp: Annotated[tuple[str, ...], _vendor("NVIDIA's OCSP responder")] = ()
    nras: Annotated[tuple[str, ...], _vendor("NVIDIA's token service, for its keys")] = ()
    proxy: Annotated[
        str | None,
        Key(
            "HTTP proxy for all of them; the environment's is not used.",
            rules.endorser_url,
            secret=True,
        ),
    ] = None
    ca_file: Annotated[
        Path | None, Key("Further CA certificates for their TLS, in PEM, beside the system's.")
    ] = None

"""What must the edge do with sealed requests, whether it opens them or passes them on?"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response

from attestation.keyset import Mode, OhttpKey


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyList:
    """What a client may seal to now, and for how long a cache may say so."""

    body: bytes
    fresh_s: float


class EdgeDoors(Protocol):
    """What the edge does with sealed requests; which one it is, its keyset says (`mode`)."""

    @property
    def mode(self) -> Mode: ...

    def attested(self) -> Sequence[OhttpKey]:
        """The gateway's own keys, as its keyset names them; from any thread."""
        ...

    @property
    def changes_at(self) -> datetime:
        """Until then `attested` and this stay as they are, so that the keyset's digest may; from
        any thread.
        """
        ...

    async def key_list(self, model: str | None) -> KeyList:
        """Keys for `model`, or for any. Raises: GatewayError."""
        ...

    def ehbp_key(self) -> KeyList:
        """Raises: GatewayError `not_found` where EHBP is not spoken."""
        ...

    async def respond(self, request: Request) -> Response:
        """Answers an encapsulated request. Raises: GatewayError."""
        ...

    async def respond_tng(self, request: Request, *, now: datetime) -> Response:
        """Answers what came in TNG's framing. Raises: GatewayError."""
        ...

    async def keep(self) -> None:
        """What has to be done while the gateway runs; until cancelled."""
        ...

"""The doors of a gateway that ends the seal itself: which keys are its own, and who opens what?"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from attestation.channel import ehbp, serialize_key_configs
from attestation.keyset import OhttpKey
from gateway.channel_keys import ChannelKeys
from gateway.doors.edge import KeyList
from gateway.doors.ohttp import OhttpDoor
from gateway.doors.opening import UnopenedBytes
from gateway.doors.tng import TngDoor


class TerminatingDoors:
    """Opens every sealed request here."""

    mode: Final = "terminate"

    def __init__(
        self,
        *,
        keys: ChannelKeys,
        unopened: UnopenedBytes,
        ohttp: OhttpDoor,
        tng: TngDoor,
        has_bare_list: bool,
    ) -> None:
        """`has_bare_list` is for clients that read one configuration, not a list; `keys` and
        `unopened` are those of all doors, EHBP's too.
        """
        self.keys = keys
        self.unopened = unopened
        self._ohttp = ohttp
        self._tng = tng
        self._has_bare_list = has_bare_list

    def attested(self) -> Sequence[OhttpKey]:
        return self.keys.attested()

    @property
    def changes_at(self) -> datetime:
        return self.keys.changes_at

    async def key_list(self, model: str | None) -> KeyList:
        """The Active and Pending keys, the one to use first; they are for every model."""
        published = self.keys.published
        is_bare = self._has_bare_list
        return self._listed(
            published[0].serialize() if is_bare else serialize_key_configs(published)
        )

    def ehbp_key(self) -> KeyList:
        """The Active key for EHBP, without the length that a list puts before it."""
        offered = (c for c in self.keys.published if c.symmetric == ehbp.OFFER.symmetric)
        return self._listed(next(offered).serialize())

    async def respond(self, request: Request) -> Response:
        return await self._ohttp.respond(request)

    async def respond_tng(self, request: Request, *, now: datetime) -> Response:
        return await self._tng.respond(request, now=now)

    async def keep(self) -> None:
        await self.keys.keep()

    def _listed(self, body: bytes) -> KeyList:
        return KeyList(body=body, fresh_s=self.keys.ring.next_change_in_s)

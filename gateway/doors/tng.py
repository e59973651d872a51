"""TNG's framing of OHTTP: how do clients of that proxy get their key, and send their requests?

Both go to `/`, told apart by one field. A request is chunked OHTTP behind metadata with a length:
a hint which key it is for, which OHTTP's own header says too.  [inclavare-containers/TNG]
There is no attestation in this exchange; whoever wants it asks `/v1/attestation` for the keyset.
"""

import base64
import math
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from attestation.channel import DecryptFailed, serialize_key_configs
from gateway.channel_keys import ChannelKeys
from gateway.doors.ohttp import OhttpDoor
from gateway.doors.opening import refusal
from gateway.problems import GatewayError, key_config_response

FIELD: Final = "x-tng-ohttp-api"
MAX_METADATA_BYTES: Final = 4096
_LENGTH_BYTES: Final = 4


class TngDoor:
    """What `/` answers."""

    def __init__(self, *, keys: ChannelKeys, door: OhttpDoor, is_offered: bool) -> None:
        self._keys = keys
        self._door = door
        self._is_offered = is_offered

    async def respond(self, request: Request, *, now: datetime) -> Response:
        """Raises: GatewayError."""
        match request.headers.get(FIELD) if self._is_offered else None:
            case "/tng/key-config":
                return self._key_config(now)
            case "/tng/tunnel":
                return await self._tunnel(request)
            case _:
                raise GatewayError("not_found", "There is no such endpoint.")

    def _key_config(self, now: datetime) -> Response:
        """Expires while the key still opens, and never so soon that it has when it arrives."""
        ring = self._keys.ring
        ends = now + timedelta(seconds=(ring.next_change_in_s + ring.active_erased_in_s) / 2)
        configs = base64.b64encode(serialize_key_configs(self._keys.published)).decode()
        body = {
            "hpke_key_config": {
                "expire_timestamp": math.ceil(ends.timestamp()),
                "encoded_key_config_list": configs,
            },
            "attest_response": {"Ok": None},  # a Rust Result: no Evidence was asked for
        }
        return JSONResponse(body, headers={"cache-control": "no-store"})

    async def _tunnel(self, request: Request) -> Response:
        try:
            return await self._door.respond_chunked(request, _behind_metadata(request.stream()))
        except GatewayError as err:
            if err.code != "key_config_error":
                raise
            return key_config_response(request.scope, err)


async def _behind_metadata(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """What follows the metadata. Raises: GatewayError `decrypt_failed` for one too long."""
    head, is_behind = bytearray(), False
    async for data in stream:
        if is_behind:
            yield data
            continue
        head += data
        if len(head) < _LENGTH_BYTES:
            continue
        length = int.from_bytes(head[:_LENGTH_BYTES], "big")
        if length > MAX_METADATA_BYTES:
            raise refusal(DecryptFailed("malformed"))
        if len(head) >= _LENGTH_BYTES + length:
            is_behind = True
            yield bytes(head[_LENGTH_BYTES + length :])

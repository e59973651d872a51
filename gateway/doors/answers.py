"""How is what the app answers sealed on its way out?  ASGI messages in, sealed ones out.

A stream is sealed message by message as it comes. Any other answer is collected and sealed in one
piece, so that neither its parts nor, padded, its length say much.
"""

from collections.abc import Callable

from starlette.types import Message, Send

from attestation.channel import ResponseSealer, bhttp
from attestation.channel.padding import padding_for
from gateway import sse


class SealedAnswer:
    """The `send` of an app whose request came sealed.

    With `sealer` a stream goes out chunk by chunk; without one it is collected too.
    """

    def __init__(
        self,
        send: Send,
        *,
        media_type: str,
        seal_whole: Callable[[bytes], bytes],
        sealer: ResponseSealer | None,
        is_padded: bool,
    ) -> None:
        self._send = send
        self._media_type = media_type
        self._seal_whole = seal_whole
        self._sealer = sealer
        self._is_padded = is_padded
        self._head = bhttp.ResponseHead(status=200)
        self._content = bytearray()
        self._is_stream = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._begin(message)
        elif message["type"] == "http.response.body":
            data, is_last = message.get("body", b""), not message.get("more_body", False)
            await (self._pass_on if self._is_stream else self._collect)(data, is_last)

    async def _begin(self, message: Message) -> None:
        kept = bhttp.without_connection_fields(
            (name.decode("latin-1").lower(), value.decode("latin-1"))
            for name, value in message.get("headers", ())
            if name.lower() != b"content-length"
        )
        self._head = bhttp.ResponseHead(status=message["status"], fields=kept)
        is_stream = dict(kept).get("content-type", "").startswith(sse.MEDIA_TYPE)
        if is_stream and self._sealer is not None:
            self._is_stream = True
            head = bhttp.serialize_response_head(self._head)
            await self._start()
            await self._write(self._sealer.start() + self._sealer.seal_chunk(head))

    async def _pass_on(self, data: bytes, is_last: bool) -> None:
        sealer = self._sealer
        if sealer is None:
            return
        sealed = sealer.seal_chunk(bhttp.serialize_content_chunk(data))
        if is_last:
            sealed += sealer.seal_chunk(bhttp.serialize_end()) + sealer.seal_final()
        if sealed:
            await self._write(sealed, is_last=is_last)

    async def _collect(self, data: bytes, is_last: bool) -> None:
        self._content += data
        if not is_last:
            return
        head = self._head
        whole = bhttp.Response(status=head.status, fields=head.fields, content=bytes(self._content))
        message = bhttp.serialize_response(whole)
        if self._is_padded:
            message += bytes(padding_for(len(message)))
        await self._start()
        await self._write(self._seal_whole(message), is_last=True)

    async def _start(self) -> None:
        headers = [
            (b"content-type", self._media_type.encode()),
            (b"cache-control", b"no-store"),
            (b"incremental", b"?1" if self._is_stream else b"?0"),
        ]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _write(self, data: bytes, *, is_last: bool = False) -> None:
        await self._send({"type": "http.response.body", "body": data, "more_body": not is_last})

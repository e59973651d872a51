"""How does an HTTP request become one sealed message, and a sealed answer an HTTP response?

Only what belongs to the connection stays outside; path, credentials, and headers travel sealed.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from attestation.channel import (
    CHUNKED_RESPONSE_TYPE,
    ChannelError,
    ClientRequest,
    KeyConfig,
    ResponseOpener,
    Rng,
    bhttp,
)
from attestation.channel.padding import padding_for
from attestation.transport.errors import ChannelBroken

KEY_CHANGED: Final = "key_config_error"
CREDENTIAL: Final = "authorization"
_NOT_SEALED: Final = frozenset(  # besides what is about the connection
    {
        "accept-encoding",  # a compressed answer would tell its length's secrets
        "content-length",
        "date",  # ours, since replays are told by it
        "host",
        "proxy-authorization",
        "te",
        "trailer",
    }
)

Fields = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainRequest:
    """A request before it is sealed; ``path`` with its query."""

    method: str
    authority: str
    path: str
    fields: Fields = field(repr=False)
    content: bytes = field(repr=False)

    def without(self, name: str) -> "PlainRequest":
        """The same without a field, whose name is in lower case."""
        kept = [(key, value) for key, value in self.fields if key.lower() != name]
        return replace(self, fields=kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedRequest:
    """``body`` is what is posted, ``opening`` opens the one answer to it."""

    body: bytes = field(repr=False)
    opening: "Opening"


class Opening:
    """Opens one answer as it arrives."""

    def __init__(self, opener: ResponseOpener) -> None:
        self._opener = opener
        self._parser = bhttp.ResponseParser()

    @property
    def head(self) -> bhttp.ResponseHead | None:
        """None until it has arrived."""
        return self._parser.head

    def feed(self, data: bytes) -> list[bytes]:
        """The pieces of content that ``data`` completes. Raises: ChannelBroken."""
        try:
            return list(self._parse(self._opener.feed(data)))
        except ChannelError as err:
            raise _broken(err) from err

    def finish(self) -> list[bytes]:
        """What is left at the end. Raises: ChannelBroken unless the answer is whole."""
        try:
            rest = list(self._parse(self._opener.finish()))
            self._parser.finish()
        except ChannelError as err:
            raise _broken(err) from err
        return rest

    def _parse(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            yield from self._parser.feed(chunk)


def seal(request: PlainRequest, key_config: KeyConfig, *, at: datetime, rng: Rng) -> SealedRequest:
    """``at`` is the moment of sealing, in UTC.

    Raises: ChannelBroken for a request that no HTTP message may be, or a key of no use.
    """
    fields = bhttp.without_connection_fields(
        (name.lower(), value.strip()) for name, value in request.fields
    )
    try:
        message = bhttp.Request(
            method=request.method,
            authority=request.authority,
            path=request.path,
            fields=(
                *((name, value) for name, value in fields if name not in _NOT_SEALED),
                ("date", bhttp.http_date(at)),
            ),
            content=request.content,
        )
        sealed = ClientRequest(key_config, rng=rng)
        plain = bhttp.serialize_request(message)
        body = sealed.seal_message(plain + bytes(padding_for(len(plain))))  # [RFC 9292 sec. 3.8]
    except ChannelError as err:
        raise ChannelBroken(err.code, f"the request cannot be sealed: {err}") from err
    return SealedRequest(body=body, opening=Opening(sealed.response_opener()))


def is_sealed_answer(status: int, media_type: str) -> bool:
    return status == 200 and media_type.partition(";")[0].strip() == CHUNKED_RESPONSE_TYPE


def outer_error(status: int, code: str) -> tuple[int, bytes]:
    """A refusal from outside the seal, in the shape that clients of ``/v1`` understand.

    Of what it says only the code is taken; a 200 that is no sealed answer is the server's fault.
    """
    status = status if status >= 400 else 502
    error = {
        "message": "The gateway refused the sealed request.",
        "type": "server_error" if status >= 500 else "invalid_request_error",
        "param": None,
        "code": code or None,
    }
    return status, json.dumps({"error": error}).encode()


def _broken(err: ChannelError) -> ChannelBroken:
    return ChannelBroken(err.code, f"the sealed answer is not whole: {err}")

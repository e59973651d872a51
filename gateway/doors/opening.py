"""How is a sealed body opened, and what does the sender learn when it does not open?

As little as possible: one fixed text per code, whatever the cause, so that answers are no oracle.
The precise class goes to the log.  [protocol: outer statuses]
"""

import logging
from collections.abc import AsyncIterator, Mapping
from typing import Final, Protocol

from starlette.requests import ClientDisconnect

from attestation.channel import (
    BodyTooLarge,
    ChannelError,
    DecryptFailed,
    MalformedInner,
    RefusedTarget,
    bhttp,
)
from gateway.problems import GatewayError

_log = logging.getLogger(__name__)

_TEXTS: Final[Mapping[str, str]] = {
    "key_config_error": "The key configuration is not known here.",
    "decrypt_failed": "The encapsulated message could not be opened.",
    "malformed_inner": "The opened message is not a request.",
    "body_too_large": "The encapsulated message is too large.",
    "too_many_chunks": "The encapsulated message has too many chunks.",
}


class BodyOpener(Protocol):
    """Opens one body as it arrives."""

    def feed(self, data: bytes) -> list[bytes]: ...

    def finish(self) -> list[bytes] | None:
        """What the end of the body brought, if anything."""
        ...


class WholeBody:
    """Collects a body that only opens as a whole."""

    def __init__(self, *, max_bytes: int) -> None:
        self._num_left = max_bytes

    def feed(self, data: bytes) -> list[bytes]:
        """Raises: BodyTooLarge."""
        self._num_left -= len(data)
        if self._num_left < 0:
            raise BodyTooLarge("a body over its limit")
        return [data]

    def finish(self) -> None:
        return None


class UnopenedBytes:
    """What strangers may make a process hold: all bodies together that are not opened yet.

    Who sent one is only known when it is open, so no bound of a client's own can count before.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._num_bytes = 0

    def take(self, num_bytes: int) -> None:
        """Raises: GatewayError `overloaded`, and then nothing was taken."""
        if self._num_bytes + num_bytes > self._max_bytes:
            raise GatewayError("overloaded", "Too many sealed requests arrive; retry shortly.")
        self._num_bytes += num_bytes

    def give_back(self, num_bytes: int) -> None:
        self._num_bytes -= num_bytes


async def open_body(
    stream: AsyncIterator[bytes], opener: BodyOpener, unopened: UnopenedBytes | None = None
) -> bytes:
    """The whole verified plaintext; what it takes meanwhile counts towards `unopened`.

    Raises: ChannelError; GatewayError of the stream's own limits, `client_disconnected`,
    `overloaded`.
    """
    opened, num_taken = bytearray(), 0
    try:
        async for data in stream:
            if unopened is not None:
                unopened.take(len(data))
                num_taken += len(data)
            for chunk in opener.feed(data):
                opened += chunk
    except ClientDisconnect:
        raise GatewayError("client_disconnected", "The client went away.") from None
    finally:
        if unopened is not None:
            unopened.give_back(num_taken)
    for chunk in opener.finish() or ():
        opened += chunk
    return bytes(opened)


def sealed_date(message: bhttp.Request) -> str | None:
    """The request's own date. Raises: GatewayError `date_outside_window` when there are two."""
    dates = [value for name, value in message.fields if name == "date"]
    if len(dates) > 1:
        raise GatewayError("date_outside_window", "The sealed request has more than one date.")
    return dates[0] if dates else None


def refusal(err: ChannelError) -> GatewayError:
    """What the sender is told; the logs say which it was."""
    detail = err.detail if isinstance(err, DecryptFailed) else err.code
    _log.info("sealed request refused", extra={"code": err.code, "detail": detail})
    code = err.code
    if code == "unsupported_suite":
        code = "key_config_error"
    elif isinstance(err, MalformedInner | RefusedTarget):
        code = "malformed_inner"
    text = _TEXTS.get(code, "The sealed message is not accepted.")
    return GatewayError(code, text, hidden_code=detail)

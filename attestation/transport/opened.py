"""What becomes of the gateway's outer answer: a response that opens as it is read, or a refusal?"""

from collections.abc import AsyncIterator, Iterator
from typing import Final

import httpx

from attestation.transport.errors import ChannelBroken
from attestation.transport.evidence import MAX_ERROR_BYTES, error_code
from attestation.transport.sealing import Opening, is_sealed_answer, outer_error
from attestation.transport.session import Session

VERDICT: Final = "starshade_verdict_id"  # in a response's extensions


def is_sealed(outer: httpx.Response) -> bool:
    return is_sealed_answer(outer.status_code, outer.headers.get("content-type", ""))


def read_refusal(outer: httpx.Response) -> tuple[str, httpx.Response]:
    """The code of an answer that is not sealed, and what the caller sees of it; closes it."""
    body = bytearray()
    try:
        for data in outer.iter_raw():
            body += data
            if len(body) > MAX_ERROR_BYTES:
                break
    finally:
        outer.close()
    return _refusal(outer, bytes(body))


async def aread_refusal(outer: httpx.Response) -> tuple[str, httpx.Response]:
    """``read_refusal`` for an event loop."""
    body = bytearray()
    try:
        async for data in outer.aiter_raw():
            body += data
            if len(body) > MAX_ERROR_BYTES:
                break
    finally:
        await outer.aclose()
    return _refusal(outer, bytes(body))


def opened(opening: Opening, outer: httpx.Response, session: Session) -> httpx.Response:
    """The inner response once its head is there; its stream closes the outer one."""
    try:
        data, early = outer.iter_raw(), list[bytes]()
        while opening.head is None:
            early += opening.feed(_some(next(data, None), opening))
    except BaseException:
        outer.close()
        raise
    return _inner(opening, _OpenedStream(opening, outer, data, early), session)


async def aopened(opening: Opening, outer: httpx.Response, session: Session) -> httpx.Response:
    """``opened`` for an event loop."""
    try:
        data, early = outer.aiter_raw(), list[bytes]()
        while opening.head is None:
            early += opening.feed(_some(await anext(data, None), opening))
    except BaseException:
        await outer.aclose()
        raise
    return _inner(opening, _AsyncOpenedStream(opening, outer, data, early), session)


class _OpenedStream(httpx.SyncByteStream):
    """The content as it opens; ends well only after the final chunk was verified."""

    def __init__(
        self, opening: Opening, outer: httpx.Response, data: Iterator[bytes], early: list[bytes]
    ) -> None:
        self._opening = opening
        self._outer = outer
        self._data = data
        self._early = early

    def __iter__(self) -> Iterator[bytes]:
        yield from self._early
        for data in self._data:
            yield from self._opening.feed(data)
        yield from self._opening.finish()

    def close(self) -> None:
        self._outer.close()


class _AsyncOpenedStream(httpx.AsyncByteStream):
    """``_OpenedStream`` for an event loop."""

    def __init__(
        self,
        opening: Opening,
        outer: httpx.Response,
        data: AsyncIterator[bytes],
        early: list[bytes],
    ) -> None:
        self._opening = opening
        self._outer = outer
        self._data = data
        self._early = early

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._early:
            yield piece
        async for data in self._data:
            for piece in self._opening.feed(data):
                yield piece
        for piece in self._opening.finish():
            yield piece

    async def aclose(self) -> None:
        await self._outer.aclose()


def _some(data: bytes | None, opening: Opening) -> bytes:
    """Raises: ChannelBroken when the answer ended before its head."""
    if data is not None:
        return data
    opening.finish()
    raise ChannelBroken("truncated_inner", "the sealed answer ended before its head")


def _inner(
    opening: Opening, stream: httpx.SyncByteStream | httpx.AsyncByteStream, session: Session
) -> httpx.Response:
    head = opening.head
    if head is None:  # pragma: no cover - the callers wait for it
        raise ChannelBroken("truncated_inner", "the sealed answer has no head")
    return httpx.Response(
        head.status,
        headers=list(head.fields),
        stream=stream,
        extensions={VERDICT: session.result.verdict_id},
    )


def _refusal(outer: httpx.Response, body: bytes) -> tuple[str, httpx.Response]:
    code = error_code(body)
    status, content = outer_error(outer.status_code, code)
    headers = {"content-type": "application/json", "content-length": str(len(content))}
    if (pause := outer.headers.get("retry-after", "")).isdecimal():
        headers["retry-after"] = pause
    return code, httpx.Response(status, headers=headers, stream=httpx.ByteStream(content))

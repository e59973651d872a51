"""How does one HTTP exchange travel sealed to a worker, and back as it is produced?

Only ciphertext leaves here. The response is opened chunk by chunk; that it is whole is known only
when its final chunk verifies, and an end without it is an error.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Final
from urllib.parse import urlencode

from attestation.channel import (
    CHUNKED_REQUEST_TYPE,
    ChannelError,
    ClientRequest,
    KeyConfig,
    ResponseOpener,
    Rng,
    bhttp,
)
from attestation.channel.bhttp import ResponseParser
from attestation.channel.padding import padding_for
from attestation.receipt import Revocation
from gateway.calls import MALFORMED
from gateway.problems import GatewayError, is_known_code
from gateway.worker_connection import WorkerGone
from gateway.worker_http import WorkerHttp, WorkerResponse

MAX_PROBLEM_BYTES: Final = 16_384
_STALE_KEY_CODES: Final = frozenset({"key_config_error", "decrypt_failed"})


class StaleKey(Exception):
    """The worker could not open the request: its key is not the one sealed to. Nothing ran."""


class WorkerClient:
    """Connections to one worker under one lease; closed when retired and no longer in use."""

    def __init__(self, address: str) -> None:
        """`address` is `unix:/path` or `http://host:port`."""
        self._http = WorkerHttp(address)
        self._is_retired = False
        self._is_aborted = False
        self.num_open = 0
        self.revocation: Revocation | None = None  # of the lease, by a negative verdict

    async def get(self, path: str, *, max_bytes: int, **params: str) -> bytes:
        """The body of a 200 response; nothing inflates it, so it costs `max_bytes` at most.

        Raises: GatewayError `upstream_unavailable`, or the code of the worker's problem.
        """
        try:
            response = await self._http.get(f"{path}?{urlencode(params)}" if params else path)
            try:
                body = await read_bounded(_plain(response), max_bytes)
            finally:
                self._http.release(response)
        except WorkerGone:
            raise unreachable() from None
        if response.status == 200:
            return body
        code = _problem_code(body)
        raise GatewayError(code or "upstream_unavailable", "The worker cannot answer now.")

    async def post(
        self, path: str, body: bytes | AsyncIterator[bytes], *, media_type: str
    ) -> WorkerResponse:
        """An open response. Raises: GatewayError `upstream_unavailable`."""
        self.num_open += 1
        try:
            return await self._http.post(path, body, media_type=media_type)
        except BaseException as err:
            self._leave()
            if isinstance(err, WorkerGone):
                raise self.failure(unreachable()) from None
            raise

    def release(self, response: WorkerResponse) -> None:
        """Ends one exchange; a response that was not read to its end closes its connection."""
        self._http.release(response)
        self._leave()

    def failure(self, error: GatewayError) -> GatewayError:
        """Why an exchange ended: `error`, or that it was cut because of a verdict."""
        revocation = self.revocation
        if revocation is None or not self._is_aborted:
            return error
        return GatewayError(
            "upstream_verification_failed",
            f"The worker is no longer trusted: {revocation.code}.",
            detail_code=revocation.code,
        )

    async def retire(self) -> None:
        """No new exchange; the connections close with the last one that is open."""
        self._is_retired = True
        if self.num_open == 0:
            self._http.close()

    async def abort(self) -> None:
        """Close every connection now: the worker is no longer trusted."""
        self._is_retired = self._is_aborted = True
        self._http.close()

    def _leave(self) -> None:
        self.num_open -= 1
        if self._is_retired and self.num_open == 0:
            self._http.close()


class SealedExchange:
    """One sealed request whose response head has arrived; close it in every case."""

    def __init__(
        self,
        client: WorkerClient,
        response: WorkerResponse,
        opener: ResponseOpener,
        parser: ResponseParser,
    ) -> None:
        self._client = client
        self._response = response
        self._opener = opener
        self._parser = parser
        self._early: list[bytes] = []  # content that arrived together with the head
        self._has_ended = False  # and was verified
        self._is_closed = False

    @property
    def status(self) -> int:
        return self._head.status

    @property
    def _head(self) -> bhttp.ResponseHead:
        if self._parser.head is None:
            raise truncated()
        return self._parser.head

    async def read_head(self) -> None:
        """Raises: GatewayError `upstream_truncated` or `upstream_error`."""
        while self._parser.head is None:
            data = await self._response.read()
            if data is None:
                raise truncated()
            self._early += self._open(data)

    async def read(self) -> bytes | None:
        """The content that has come since, at least one byte; None at the end.

        Raises: GatewayError `upstream_truncated` unless the final chunk verified, and
        `upstream_error` for bytes that do not open.
        """
        pieces, self._early = self._early, []
        while not pieces and not self._has_ended:
            try:
                data = await self._response.read()
            except WorkerGone:
                raise self._client.failure(truncated()) from None
            pieces = self._finish() if data is None else self._open(data)
        if not pieces:
            return None
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def divert(self, take: Callable[[bytes], None], *, is_ready: Callable[[], bool]) -> None:
        """From now on `take` gets the content that comes while `read` waits, where `is_ready`;
        `read` raises what it raises.
        """

        def take_data(data: bytes) -> None:
            for piece in self._open(data):
                take(piece)

        self._response.divert(take_data, is_ready=is_ready)

    async def content(self) -> AsyncGenerator[bytes, None]:
        """The same until the end. Raises: as `read`."""
        while (piece := await self.read()) is not None:
            yield piece

    async def aclose(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._client.release(self._response)

    def _finish(self) -> list[bytes]:
        try:
            pieces = [
                piece for chunk in self._opener.finish() for piece in self._parser.feed(chunk)
            ]
            self._parser.finish()
        except ChannelError:
            raise self._client.failure(truncated()) from None
        self._has_ended = True
        return pieces

    def _open(self, data: bytes) -> list[bytes]:
        try:
            chunks = self._opener.feed(data)
            return [piece for chunk in chunks for piece in self._parser.feed(chunk)]
        except ChannelError as err:
            raise GatewayError(
                "upstream_error",
                "The worker's sealed response does not open.",
                detail_code=err.code,
            ) from None


async def open_exchange(
    client: WorkerClient,
    key_config: KeyConfig,
    request: bhttp.Request,
    *,
    rng: Rng,
    on_sealed: Callable[[], None] = lambda: None,
) -> SealedExchange:
    """Seal, send, and wait for the head of the inner response.

    Raises: StaleKey; GatewayError `upstream_unavailable`, `upstream_truncated`, `upstream_error`.
    """
    sealed = ClientRequest(key_config, rng=rng)
    message = bhttp.serialize_request(request)
    body = sealed.seal_message(message + bytes(padding_for(len(message))))
    on_sealed()
    response = await client.post("/ohttp", body, media_type=CHUNKED_REQUEST_TYPE)
    try:
        if response.status != 200:
            raise await _refusal(response)
        exchange = SealedExchange(client, response, sealed.response_opener(), ResponseParser())
        try:
            await exchange.read_head()
        except WorkerGone:
            raise client.failure(unreachable()) from None
    except BaseException:
        client.release(response)
        raise
    return exchange


def unreachable() -> GatewayError:
    return GatewayError("upstream_unavailable", "The worker cannot be reached.")


def truncated() -> GatewayError:
    return GatewayError("upstream_truncated", "The worker's response ended before it was whole.")


async def read_bounded(
    chunks: AsyncIterator[bytes], max_bytes: int, *, error: GatewayError | None = None
) -> bytes:
    """All of `chunks`. Raises: GatewayError beyond `max_bytes`, `upstream_error` unless told."""
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > max_bytes:
            raise error or GatewayError(
                "upstream_error", f"The worker's answer exceeds {max_bytes} bytes."
            )
    return bytes(body)


def _plain(response: WorkerResponse) -> AsyncIterator[bytes]:
    """The bytes as they came. Raises: GatewayError `upstream_error` when they are compressed."""
    if "content-encoding" in response.fields:
        raise GatewayError("upstream_error", "The worker's answer is compressed.")
    return response.pieces()


async def _refusal(response: WorkerResponse) -> Exception:
    try:
        body = await read_bounded(_plain(response), MAX_PROBLEM_BYTES)
    except WorkerGone:
        return unreachable()
    code = _problem_code(body)
    if code in _STALE_KEY_CODES:
        return StaleKey()
    if code in {"worker_not_ready", "server_stopping", "overloaded"}:
        return GatewayError(code, "The worker cannot take this request now.")
    return GatewayError(
        "upstream_error", "The worker refused the sealed request.", detail_code=code
    )


def _problem_code(body: bytes) -> str | None:
    try:
        code = json.loads(body)["code"]
    except MALFORMED:
        return None
    return code if isinstance(code, str) and is_known_code(code) else None

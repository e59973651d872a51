"""Chunked OHTTP: how do a request and its streamed response travel sealed?

No I/O here: bytes go in, bytes come out, in pieces of any size.  [RFC 9458;
draft-ietf-ohai-chunked-ohttp]  ``bhttp`` is ``attestation.channel.bhttp``.

Client side, streaming::

    request = ClientRequest(lease.key_config, rng=os.urandom)
    body = request.seal_message(bhttp.serialize_request(inner))  # header, chunks, final
    # or piecewise: request.header, then seal_chunk(data)..., then seal_final()
    opener, head_and_content = request.response_opener(), bhttp.ResponseParser()
    async for data in post("/ohttp", body, CHUNKED_REQUEST_TYPE):
        for chunk in opener.feed(data):
            for content in head_and_content.feed(chunk):
                await relay(head_and_content.head, content)
    for chunk in opener.finish():  # DecryptFailed("truncated") unless the final chunk verified
        for content in head_and_content.feed(chunk):
            await relay(head_and_content.head, content)
    head_and_content.finish()  # TruncatedInner when the inner message is not whole

Server side, streaming::

    key = ServerKey.generate(key_id=1)  # publish serialize_key_configs([key.config])
    request = ServerRequest({1: key}, limits=ChunkLimits(max_body_bytes=1 << 20))
    inner = bytearray()
    async for data in http_request_stream():
        for chunk in request.feed(data):  # KeyConfigError, DecryptFailed, BodyTooLarge, ...
            inner += chunk
    for chunk in request.finish():  # only now is the request authentic as a whole
        inner += chunk
    message = bhttp.parse_request(bytes(inner))
    sealer = request.response_sealer(rng=os.urandom)
    yield sealer.start() + sealer.seal_chunk(bhttp.serialize_response_head(head))
    async for event in run(message):
        yield sealer.seal_chunk(bhttp.serialize_content_chunk(event))
    yield sealer.seal_chunk(bhttp.serialize_end()) + sealer.seal_final()
"""

from attestation.channel.chunks import DEFAULT_LIMITS, ChunkLimits, ChunkOpener, ChunkSealer
from attestation.channel.encapsulation import (
    CHUNKED,
    HEADER_BYTES,
    ResponseCipher,
    ServerKeys,
    find_server_key,
    request_preamble_bytes,
    response_nonce_bytes,
    setup_client,
    setup_server,
)
from attestation.channel.errors import ChannelMisuse, DecryptFailed
from attestation.channel.hpke import RecipientContext, Rng, SenderContext, Suite
from attestation.channel.keyconfig import KeyConfig

CHUNKED_REQUEST_TYPE = "message/ohttp-chunked-req"
CHUNKED_RESPONSE_TYPE = "message/ohttp-chunked-res"
KEY_LIST_TYPE = "application/ohttp-keys"


class ClientRequest:
    """One request to the holder of a key; ``header`` (hdr and enc) goes out first.

    ``rng`` gives the ephemeral key and must be the system's outside tests.

    Raises: UnsupportedSuite when the key does not offer ``suite``; KeyConfigError for a bad key.
    """

    __slots__ = ("_context", "_sealer", "header")

    def __init__(self, key_config: KeyConfig, suite: Suite | None = None, *, rng: Rng) -> None:
        self.header, self._context = setup_client(key_config, suite, CHUNKED, rng)
        self._sealer = ChunkSealer(self._context.seal)

    @property
    def enc(self) -> bytes:
        """The encapsulated key of this request."""
        return self._context.enc

    def seal_chunk(self, data: bytes) -> bytes:
        """Wire bytes of ``data``; no bytes for none.

        Raises: ChannelMisuse after the end; TooManyChunks, BodyTooLarge at the cipher's limits.
        """
        return self._sealer.seal_chunk(data)

    def seal_final(self) -> bytes:
        """Wire bytes of the empty final chunk.

        Raises: ChannelMisuse when called twice.
        """
        return self._sealer.seal_final()

    def seal_message(self, message: bytes) -> bytes:
        """The whole body of a request that is at hand: header, chunks and final chunk."""
        return self.header + self.seal_chunk(message) + self.seal_final()

    def response_opener(self, *, limits: ChunkLimits = DEFAULT_LIMITS) -> "ResponseOpener":
        """Opens the one response to this request."""
        return ResponseOpener(self._context, limits)


class ResponseOpener:
    """Opens a response as it arrives; made by ``ClientRequest.response_opener``."""

    __slots__ = ("_buffer", "_chunks", "_context", "_is_closed", "_limits")

    def __init__(self, context: SenderContext, limits: ChunkLimits) -> None:
        self._context = context
        self._limits = limits
        self._buffer = b""
        self._chunks: ChunkOpener | None = None
        self._is_closed = False

    def feed(self, data: bytes) -> list[bytes]:
        """Plaintexts of the chunks that ``data`` completes.

        Raises: DecryptFailed; BodyTooLarge, TooManyChunks over a limit; ChannelMisuse afterwards.
        """
        if self._chunks is not None:
            return self._chunks.feed(data)
        if self._is_closed:
            raise ChannelMisuse("the body has ended or failed already")
        self._buffer += data
        nonce_bytes = response_nonce_bytes(self._context.suite)
        if len(self._buffer) < nonce_bytes:
            return []
        nonce, rest = self._buffer[:nonce_bytes], self._buffer[nonce_bytes:]
        self._chunks = ChunkOpener(ResponseCipher(self._context, nonce, CHUNKED).open, self._limits)
        self._buffer = b""
        return self._chunks.feed(rest)

    def finish(self) -> list[bytes]:
        """The response has ended: the data of the final chunk, usually none.

        Raises: DecryptFailed, with detail "truncated" unless the final chunk arrived.
        """
        if self._chunks is None:
            self._is_closed = True
            raise DecryptFailed("truncated")
        return self._chunks.finish()

    def open_message(self, body: bytes) -> bytes:
        """The plaintext of a whole response body."""
        return b"".join([*self.feed(body), *self.finish()])


class ServerRequest:
    """Opens one request as it arrives and seals its response.

    ``key_id`` and ``enc`` are known (else None) once the header has arrived: together they name
    the request in a replay cache.
    """

    __slots__ = ("_buffer", "_chunks", "_context", "_is_closed", "_is_finished", "_keys", "_limits",
                 "enc", "key_id")  # fmt: skip

    def __init__(self, keys: ServerKeys, *, limits: ChunkLimits = DEFAULT_LIMITS) -> None:
        self._keys = keys
        self._limits = limits
        self._buffer = b""
        self._chunks: ChunkOpener | None = None
        self._context: RecipientContext | None = None
        self._is_closed = False
        self._is_finished = False
        self.key_id: int | None = None
        self.enc: bytes | None = None

    def feed(self, data: bytes) -> list[bytes]:
        """Plaintexts of the chunks that ``data`` completes; act on none before ``finish``.

        Raises: KeyConfigError for a header that names no key here; DecryptFailed; BodyTooLarge,
        TooManyChunks over a limit; ChannelMisuse after any of them.
        """
        if self._chunks is not None:
            return self._chunks.feed(data)
        if self._is_closed:
            raise ChannelMisuse("the body has ended or failed already")
        self._is_closed = True  # stays so when the header is refused
        self._buffer += data
        opened = self._open_header()
        self._is_closed = False
        return opened

    def finish(self) -> list[bytes]:
        """The request has ended: the data of the final chunk, usually none.

        Raises: DecryptFailed, with detail "malformed" for a body shorter than its header and
        "truncated" unless the final chunk arrived.
        """
        if self._chunks is None:
            if self._is_closed:
                raise ChannelMisuse("the body has ended or failed already")
            self._is_closed = True
            raise DecryptFailed("malformed")
        tail = self._chunks.finish()
        self._is_finished = True
        return tail

    def open_message(self, body: bytes) -> bytes:
        """The plaintext of a whole request body."""
        return b"".join([*self.feed(body), *self.finish()])

    def response_sealer(self, *, rng: Rng) -> "ResponseSealer":
        """Seals the one response to this request.

        Raises: ChannelMisuse before ``finish`` has verified the whole request.
        """
        if self._context is None or not self._is_finished:
            raise ChannelMisuse("a request is answered after its final chunk")
        return ResponseSealer(self._context, rng)

    def _open_header(self) -> list[bytes]:
        """Sets up the context once the header is whole, and opens what follows it."""
        if len(self._buffer) < HEADER_BYTES:
            return []
        header = self._buffer[:HEADER_BYTES]
        key, suite = find_server_key(self._keys, header)
        preamble_bytes = request_preamble_bytes(suite)
        if len(self._buffer) < preamble_bytes:
            return []
        enc, rest = self._buffer[HEADER_BYTES:preamble_bytes], self._buffer[preamble_bytes:]
        self._context = setup_server(key, suite, header, enc, CHUNKED)
        self._chunks = ChunkOpener(self._context.open, self._limits)
        self.key_id, self.enc, self._buffer = header[0], enc, b""
        return self._chunks.feed(rest)


class ResponseSealer:
    """Seals a response chunk by chunk; made by ``ServerRequest.response_sealer``."""

    __slots__ = ("_is_started", "_nonce", "_sealer")

    def __init__(self, context: RecipientContext, rng: Rng) -> None:
        self._nonce = rng(response_nonce_bytes(context.suite))
        self._sealer = ChunkSealer(ResponseCipher(context, self._nonce, CHUNKED).seal)
        self._is_started = False

    def start(self) -> bytes:
        """The response nonce, the first bytes of the body.

        Raises: ChannelMisuse when called twice.
        """
        if self._is_started:
            raise ChannelMisuse("the response has started already")
        self._is_started = True
        return self._nonce

    def seal_chunk(self, data: bytes) -> bytes:
        """Wire bytes of ``data``; no bytes for none.

        Raises: ChannelMisuse before ``start`` or after the end; TooManyChunks, BodyTooLarge at
        the cipher's limits.
        """
        if not self._is_started:
            raise ChannelMisuse("a response begins with its nonce")
        return self._sealer.seal_chunk(data)

    def seal_final(self) -> bytes:
        """Wire bytes of the empty final chunk.

        Raises: ChannelMisuse before ``start`` or when called twice.
        """
        if not self._is_started:
            raise ChannelMisuse("a response begins with its nonce")
        return self._sealer.seal_final()

    def seal_message(self, message: bytes) -> bytes:
        """The whole body of a response that is at hand."""
        return self.start() + self.seal_chunk(message) + self.seal_final()

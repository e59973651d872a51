"""Chunk framing of chunked OHTTP: where does a sealed chunk begin and end?

``{ varint(length) ciphertext }* 00 final-ciphertext``, the final one to the end of the body; the
lengths are not authenticated.  [draft-ietf-ohai-chunked-ohttp sec. 3]
"""

from collections.abc import Callable
from dataclasses import dataclass

from attestation.channel.errors import BodyTooLarge, ChannelMisuse, DecryptFailed, TooManyChunks
from attestation.channel.hpke import TAG_BYTES
from attestation.channel.varint import encode_varint, parse_varint

SEND_CHUNK_BYTES = 16384  # every receiver of the draft takes a chunk of this size
MAX_CHUNK_BYTES = 1 << 18  # plaintext of one received chunk: what a stream may make us buffer
MAX_CHUNKS = 1 << 20  # the draft's worked example of the AES-128-GCM confidentiality limit
MAX_BODY_BYTES = 1 << 30  # the same limit, in bytes under one key

_FINAL_AAD = b"final"

Seal = Callable[[bytes, bytes], bytes]  # (aad, plaintext) -> ciphertext and tag
Open = Callable[[bytes, bytes | bytearray], bytes]  # (aad, ciphertext) -> plaintext


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkLimits:
    """What a received body may hold; a caller can tighten the limits, never widen them.

    ``max_chunk_bytes`` is plaintext of one chunk, ``max_chunks`` counts the final one too,
    ``max_body_bytes`` is the encapsulated body after its header, framing and tags included.

    Raises: ValueError for a limit below one or over its constant.
    """

    max_chunk_bytes: int = MAX_CHUNK_BYTES
    max_chunks: int = MAX_CHUNKS
    max_body_bytes: int = MAX_BODY_BYTES

    def __post_init__(self) -> None:
        for name, value, most in (
            ("max_chunk_bytes", self.max_chunk_bytes, MAX_CHUNK_BYTES),
            ("max_chunks", self.max_chunks, MAX_CHUNKS),
            ("max_body_bytes", self.max_body_bytes, MAX_BODY_BYTES),
        ):
            if not 1 <= value <= most:
                raise ValueError(f"{name}: want 1..{most}, got {value}")


DEFAULT_LIMITS = ChunkLimits()


class ChunkSealer:
    """Frames and seals one body; the final chunk is always empty."""

    __slots__ = ("_is_closed", "_num_chunks", "_num_sent_bytes", "_seal")

    def __init__(self, seal: Seal) -> None:
        self._seal = seal
        self._is_closed = False
        self._num_chunks = 0
        self._num_sent_bytes = 0

    def seal_chunk(self, data: bytes) -> bytes:
        """Wire bytes of one chunk, or of several when ``data`` is over 16384 bytes.

        Empty data gives no bytes: an empty chunk is only legal as the final one.

        Raises: ChannelMisuse after the end; TooManyChunks, BodyTooLarge at the cipher's limits.
        """
        if self._is_closed:
            raise ChannelMisuse("the body is sealed to its end already")
        if len(data) <= SEND_CHUNK_BYTES:
            return self._seal_one(data) if data else b""
        starts = range(0, len(data), SEND_CHUNK_BYTES)
        return b"".join(self._seal_one(data[i : i + SEND_CHUNK_BYTES]) for i in starts)

    def seal_final(self) -> bytes:
        """The end marker and the empty final chunk.

        Raises: ChannelMisuse when called twice.
        """
        if self._is_closed:
            raise ChannelMisuse("the body is sealed to its end already")
        self._is_closed = True
        return b"\x00" + self._seal(_FINAL_AAD, b"")

    def _seal_one(self, data: bytes) -> bytes:
        self._num_chunks += 1
        self._num_sent_bytes += len(data)
        if self._num_chunks >= MAX_CHUNKS:
            raise TooManyChunks(f"a body has at most {MAX_CHUNKS} chunks")
        if self._num_sent_bytes > MAX_BODY_BYTES:
            raise BodyTooLarge(f"a body has at most {MAX_BODY_BYTES} bytes")
        sealed = self._seal(b"", data)
        return encode_varint(len(sealed)) + sealed


class ChunkOpener:
    """Splits and opens one body as it arrives, in pieces of any size.

    After the first error every further call raises ChannelMisuse: nothing behind it is opened.
    """

    __slots__ = ("_buffer", "_in_final", "_is_open", "_limits", "_needed", "_num_chunks",
                 "_num_received_bytes", "_open")  # fmt: skip

    def __init__(self, open_chunk: Open, limits: ChunkLimits) -> None:
        self._open = open_chunk
        self._limits = limits
        self._buffer = bytearray()
        self._needed = 1  # buffered bytes before the next step can succeed
        self._in_final = False
        self._is_open = True
        self._num_chunks = 0
        self._num_received_bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Plaintexts of the chunks that ``data`` completes, none of them empty.

        Raises: DecryptFailed; BodyTooLarge or TooManyChunks over a limit, before buffering.
        """
        if not self._is_open:
            raise ChannelMisuse("the body has ended or failed already")
        self._is_open = False  # stays so when anything below raises
        self._num_received_bytes += len(data)
        if self._num_received_bytes > self._limits.max_body_bytes:
            raise BodyTooLarge(f"body: at most {self._limits.max_body_bytes} bytes")
        self._buffer += data
        opened = self._open_whole_chunks() if len(self._buffer) >= self._needed else []
        self._is_open = True
        return opened

    def finish(self) -> list[bytes]:
        """The body has ended: the data of the final chunk, usually none.

        Raises: DecryptFailed, with detail "truncated" when there is no final chunk.
        """
        if not self._is_open:
            raise ChannelMisuse("the body has ended or failed already")
        self._is_open = False
        if not self._in_final or len(self._buffer) < TAG_BYTES:
            raise DecryptFailed("truncated")
        plaintext = self._open(_FINAL_AAD, self._buffer)
        self._buffer = bytearray()
        return [plaintext] if plaintext else []

    def _open_whole_chunks(self) -> list[bytes]:
        opened: list[bytes] = []
        buffer, start = self._buffer, 0
        while not self._in_final:
            parsed = parse_varint(buffer, start)
            if parsed is None:
                self._needed = 1  # a varint has few bytes: look again at each arrival
                break
            length, chunk_start = parsed
            self._count_chunk(length)
            if length == 0:
                self._in_final = True
                start = chunk_start
                break
            if length <= TAG_BYTES:  # an empty non-final chunk, or less than a tag
                raise DecryptFailed("decrypt")
            end = chunk_start + length
            if end > len(buffer):
                self._needed = end - start
                break
            opened.append(self._open(b"", buffer[chunk_start:end]))
            self._num_chunks += 1
            start = end
        del buffer[:start]
        if self._in_final:
            self._needed = 0
            if len(buffer) > self._limits.max_chunk_bytes + TAG_BYTES:
                raise BodyTooLarge(f"chunk: at most {self._limits.max_chunk_bytes} bytes")
        return opened

    def _count_chunk(self, length: int) -> None:
        if length > self._limits.max_chunk_bytes + TAG_BYTES:
            raise BodyTooLarge(f"chunk: at most {self._limits.max_chunk_bytes} bytes")
        if self._num_chunks >= self._limits.max_chunks:
            raise TooManyChunks(f"body: at most {self._limits.max_chunks} chunks")

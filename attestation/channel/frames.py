"""Frames of EHBP: where does a sealed piece of a body begin and end?

``{ u32 length, ciphertext }*``; an empty frame is none.  [Encrypted HTTP Body Protocol]
"""

from typing import Final

from attestation.channel.chunks import (
    MAX_BODY_BYTES,
    MAX_CHUNKS,
    SEND_CHUNK_BYTES,
    ChunkLimits,
    Open,
    Seal,
)
from attestation.channel.errors import BodyTooLarge, ChannelMisuse, DecryptFailed, TooManyChunks
from attestation.channel.hpke import TAG_BYTES

_LENGTH_BYTES: Final = 4


class FrameSealer:
    """Frames and seals one body."""

    __slots__ = ("_num_frames", "_num_sent_bytes", "_seal")

    def __init__(self, seal: Seal) -> None:
        self._seal = seal
        self._num_frames = 0
        self._num_sent_bytes = 0

    def seal_chunk(self, data: bytes) -> bytes:
        starts = range(0, len(data), SEND_CHUNK_BYTES)
        return b"".join(self._seal_one(data[i : i + SEND_CHUNK_BYTES]) for i in starts)

    def _seal_one(self, data: bytes) -> bytes:
        self._num_frames += 1
        self._num_sent_bytes += len(data)
        if self._num_frames > MAX_CHUNKS:
            raise TooManyChunks(f"a body has at most {MAX_CHUNKS} chunks")
        if self._num_sent_bytes > MAX_BODY_BYTES:
            raise BodyTooLarge(f"a body has at most {MAX_BODY_BYTES} bytes")
        sealed = self._seal(b"", data)
        return len(sealed).to_bytes(_LENGTH_BYTES, "big") + sealed


class FrameOpener:
    """Splits and opens one body as it arrives, in pieces of any size.

    A frame may be as long as ``limits.max_body_bytes``: published clients send a body as one.
    After the first error every further call raises ChannelMisuse.
    """

    __slots__ = ("_buffer", "_is_open", "_limits", "_num_frames", "_num_received_bytes", "_open")

    def __init__(self, open_frame: Open, limits: ChunkLimits) -> None:
        self._open = open_frame
        self._limits = limits
        self._buffer = bytearray()
        self._is_open = True
        self._num_frames = 0
        self._num_received_bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Plaintexts of the frames that ``data`` completes, none of them empty.

        Raises: DecryptFailed, and KeyConfigError of a request; BodyTooLarge or TooManyChunks over
        a limit, before buffering.
        """
        self._require_open()
        self._is_open = False  # stays so when anything below raises
        self._num_received_bytes += len(data)
        if self._num_received_bytes > self._limits.max_body_bytes:
            raise BodyTooLarge(f"body: at most {self._limits.max_body_bytes} bytes")
        self._buffer += data
        opened, start = [], 0
        while (end := self._frame_end(start)) is not None:
            ciphertext = self._buffer[start + _LENGTH_BYTES : end]
            start = end
            if ciphertext:  # an empty frame is no frame, and takes no number
                opened.append(self._open(b"", ciphertext))
        del self._buffer[:start]
        self._is_open = True
        return [plaintext for plaintext in opened if plaintext]

    def finish(self) -> None:
        """The body has ended, as HTTP says.

        Raises: DecryptFailed("truncated") within a frame.
        """
        self._require_open()
        self._is_open = False
        if self._buffer:
            raise DecryptFailed("truncated")

    def _frame_end(self, start: int) -> int | None:
        """Where the frame at ``start`` ends, or None while it has not arrived."""
        if len(self._buffer) < start + _LENGTH_BYTES:
            return None
        length = int.from_bytes(self._buffer[start : start + _LENGTH_BYTES], "big")
        if length > self._limits.max_body_bytes:
            raise BodyTooLarge(f"body: at most {self._limits.max_body_bytes} bytes")
        if 0 < length < TAG_BYTES:
            raise DecryptFailed("decrypt")
        end = start + _LENGTH_BYTES + length
        if end > len(self._buffer):
            return None
        self._num_frames += 1
        if self._num_frames > self._limits.max_chunks:
            raise TooManyChunks(f"body: at most {self._limits.max_chunks} chunks")
        return end

    def _require_open(self) -> None:
        if not self._is_open:
            raise ChannelMisuse("the body has ended or failed already")

"""Plain OHTTP: how do one whole request and one whole response travel sealed?  [RFC 9458 sec. 4]"""

from attestation.channel.chunks import MAX_BODY_BYTES
from attestation.channel.encapsulation import (
    HEADER_BYTES,
    PLAIN,
    ResponseCipher,
    ServerKeys,
    find_server_key,
    request_preamble_bytes,
    response_nonce_bytes,
    setup_client,
    setup_server,
)
from attestation.channel.errors import BodyTooLarge, ChannelMisuse, DecryptFailed
from attestation.channel.hpke import Rng, Suite
from attestation.channel.keyconfig import KeyConfig

PLAIN_REQUEST_TYPE = "message/ohttp-req"
PLAIN_RESPONSE_TYPE = "message/ohttp-res"


class PlainClientRequest:
    """One request to the holder of a key.

    Raises: UnsupportedSuite when the key does not offer ``suite``; KeyConfigError for a bad key.
    """

    __slots__ = ("_context", "_header", "_is_sealed")

    def __init__(self, key_config: KeyConfig, suite: Suite | None = None, *, rng: Rng) -> None:
        self._header, self._context = setup_client(key_config, suite, PLAIN, rng)
        self._is_sealed = False

    def seal_message(self, message: bytes) -> bytes:
        """The encapsulated request.

        Raises: ChannelMisuse when called twice.
        """
        if self._is_sealed:
            raise ChannelMisuse("a plain request holds one message")
        self._is_sealed = True
        return self._header + self._context.seal(b"", message)

    def open_response(self, body: bytes, *, max_body_bytes: int = MAX_BODY_BYTES) -> bytes:
        """The plaintext of an encapsulated response.

        Raises: DecryptFailed; BodyTooLarge.
        """
        _require_size(body, max_body_bytes)
        nonce_bytes = response_nonce_bytes(self._context.suite)
        if len(body) < nonce_bytes:
            raise DecryptFailed("truncated")
        cipher = ResponseCipher(self._context, body[:nonce_bytes], PLAIN)
        return cipher.open(b"", body[nonce_bytes:])


class PlainServerRequest:
    """One opened request: its ``message``, and ``key_id`` and ``enc`` for the replay cache.

    Raises: KeyConfigError for a header that names no key here; DecryptFailed; BodyTooLarge.
    """

    __slots__ = ("_context", "_is_answered", "enc", "key_id", "message")

    def __init__(
        self, keys: ServerKeys, body: bytes, *, max_body_bytes: int = MAX_BODY_BYTES
    ) -> None:
        _require_size(body, max_body_bytes)
        if len(body) < HEADER_BYTES:
            raise DecryptFailed("malformed")
        header = body[:HEADER_BYTES]
        key, suite = find_server_key(keys, header)
        preamble_bytes = request_preamble_bytes(suite)
        if len(body) < preamble_bytes:
            raise DecryptFailed("malformed")
        self.key_id = header[0]
        self.enc = body[HEADER_BYTES:preamble_bytes]
        self._context = setup_server(key, suite, header, self.enc, PLAIN)
        self.message = self._context.open(b"", body[preamble_bytes:])
        self._is_answered = False

    def seal_response(self, message: bytes, *, rng: Rng) -> bytes:
        """The encapsulated response.

        Raises: ChannelMisuse when called twice.
        """
        if self._is_answered:
            raise ChannelMisuse("a plain request has one response")
        self._is_answered = True
        nonce = rng(response_nonce_bytes(self._context.suite))
        return nonce + ResponseCipher(self._context, nonce, PLAIN).seal(b"", message)


def _require_size(body: bytes, max_body_bytes: int) -> None:
    if len(body) > min(max_body_bytes, MAX_BODY_BYTES):
        raise BodyTooLarge(f"body: at most {max_body_bytes} bytes")

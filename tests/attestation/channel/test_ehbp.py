"""EHBP: published exchanges, splitting, truncation, tampering, keys that are tried in turn."""

import json
import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attestation.channel import (
    BodyTooLarge,
    ChannelMisuse,
    ChunkLimits,
    DecryptFailed,
    KeyConfigError,
    PrivateKey,
    ServerKey,
    TooManyChunks,
    UnsupportedSuite,
    ehbp,
)
from attestation.channel.encapsulation import response_keys
from attestation.channel.kem import KEM_XWING, Rng
from tests.attestation.channel.keys import fixed_rng
from tests.support.resources import vectors_dir

KEY = ServerKey.from_private_key(3, PrivateKey.generate(rng=fixed_rng("ehbp")))
FRAMES = [b"one", b"two" * 9000, b"three"]


def vectors(kind: str) -> list[dict[str, Any]]:
    document = json.loads((vectors_dir() / "protocol" / "ehbp.json").read_text())
    found: list[dict[str, Any]] = [v for v in document["vectors"] if v["kind"] == kind]
    assert found
    return found


def returns(value: str) -> Rng:
    return lambda num_bytes: bytes.fromhex(value)[:num_bytes]


def frames_of(body: bytes) -> list[bytes]:
    frames = []
    while body:
        end = 4 + int.from_bytes(body[:4], "big")
        frames.append(body[:end])
        body = body[end:]
    return frames


def sealed_request(key: ServerKey = KEY) -> tuple[ehbp.EhbpClientRequest, bytes]:
    client = ehbp.EhbpClientRequest(key.config, rng=os.urandom)
    return client, b"".join(map(client.seal_chunk, FRAMES))


def opened_request(body: bytes, enc: bytes, **limits: int) -> ehbp.EhbpServerRequest:
    server = ehbp.EhbpServerRequest([KEY], enc, limits=ChunkLimits(**limits))
    assert server.open_message(body) == b"".join(FRAMES)
    return server


# --- published exchanges -------------------------------------------------------------------


def test_published_derivations() -> None:
    for vector in vectors("derive"):
        secret, enc, nonce = (
            bytes.fromhex(vector[name])
            for name in ("exportedSecret", "requestEnc", "responseNonce")
        )
        key, iv = response_keys(secret, enc, nonce, 32)
        assert (key.hex(), iv.hex()) == (vector["derivedKey"], vector["derivedNonceBase"])


class Exported:
    """As much of a context as its response needs."""

    suite = ehbp.SUITE

    def __init__(self, secret: bytes, enc: bytes) -> None:
        self.secret, self.enc = secret, enc

    def export(self, label: bytes, length_bytes: int) -> bytes:
        assert (label, length_bytes) == (b"ehbp response", 32)
        return self.secret


def test_published_responses() -> None:
    for vector in vectors("response"):
        context: Any = Exported(
            bytes.fromhex(vector["exportedSecret"]), bytes.fromhex(vector["requestEnc"])
        )
        sealer = ehbp.EhbpResponseSealer(context, returns(vector["responseNonce"]))
        sealed = sealer.seal_chunk(bytes.fromhex(vector["plaintext"]))
        assert sealed.hex() == vector["encryptedResponse"]


def test_published_exchanges() -> None:
    for vector in vectors("exchange"):
        key = ServerKey.from_private_key(1, PrivateKey.from_bytes(bytes.fromhex(vector["skR"])))
        assert key.config.public_key.hex() == vector["pkR"]
        body = bytes.fromhex(vector["requestBody"])
        server = ehbp.EhbpServerRequest([key], ehbp.parse_field(vector["encapsulatedKey"]))
        pieces = [piece for frame in frames_of(body) for piece in server.feed(frame)]
        server.finish()
        assert b"".join(pieces).hex() == vector["requestPlaintext"]

        client = ehbp.EhbpClientRequest(key.config, rng=returns(vector["skE"]))
        assert client.enc.hex() == vector["encapsulatedKey"]
        assert b"".join(map(client.seal_chunk, pieces)) == b"".join(
            frame for frame in frames_of(body) if len(frame) > 4
        )

        answer = bytes.fromhex(vector["responseBody"])
        nonce = ehbp.parse_field(vector["responseNonce"])
        opener = client.response_opener(nonce)
        answered = [piece for frame in frames_of(answer) for piece in opener.feed(frame)]
        opener.finish()
        assert b"".join(answered).hex() == vector["responsePlaintext"]
        sealer = server.response_sealer(rng=returns(vector["responseNonce"]))
        assert sealer.nonce == nonce
        assert b"".join(map(sealer.seal_chunk, answered)) == b"".join(
            frame for frame in frames_of(answer) if len(frame) > 4
        )


# --- one exchange, every way ---------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.integers(min_value=1, max_value=9000)))
def test_any_split_gives_the_same_bytes(cuts: list[int]) -> None:
    client, body = sealed_request()
    server = ehbp.EhbpServerRequest([KEY], client.enc)
    opened = b""
    for cut in (*cuts, len(body)):
        opened += b"".join(server.feed(body[:cut]))
        body = body[cut:]
    server.finish()
    assert opened == b"".join(FRAMES)


def test_the_key_that_fits_is_found_among_others() -> None:
    others = [ServerKey.generate(number) for number in (1, 2)]
    only_ohttp = ServerKey.generate(9, kem_id=KEM_XWING)
    client, body = sealed_request()
    server = ehbp.EhbpServerRequest([only_ohttp, *others, KEY], client.enc)
    assert server.open_message(body) == b"".join(FRAMES)
    assert server.key_id == KEY.config.key_id


def test_a_key_that_is_gone_is_told_from_a_damaged_frame() -> None:
    client, body = sealed_request()
    with pytest.raises(KeyConfigError):
        ehbp.EhbpServerRequest([ServerKey.generate(3)], client.enc).feed(body)
    first, second = frames_of(body)[:2]
    damaged = second[:-1] + bytes([second[-1] ^ 1])
    server = ehbp.EhbpServerRequest([KEY], client.enc)
    assert server.feed(first) == [FRAMES[0]]
    with pytest.raises(DecryptFailed):
        server.feed(damaged)
    with pytest.raises(ChannelMisuse):
        server.feed(second)


def test_frames_in_another_order_do_not_open() -> None:
    client, body = sealed_request()
    first, second, *_ = frames_of(body)
    with pytest.raises(KeyConfigError):
        ehbp.EhbpServerRequest([KEY], client.enc).feed(second + first)


def test_empty_frames_are_skipped_and_take_no_number() -> None:
    client, body = sealed_request()
    padded = bytes(4) + (bytes(4)).join(frames_of(body)) + bytes(4)
    opened_request(padded, client.enc)


@pytest.mark.parametrize("num_bytes", [0, 3, 4, 22, 23 + 5])
def test_a_body_that_is_cut_within_a_frame(num_bytes: int) -> None:
    client, body = sealed_request()
    server = ehbp.EhbpServerRequest([KEY], client.enc)
    server.feed(body[:num_bytes])
    with pytest.raises(DecryptFailed) as caught:
        server.finish()
    assert caught.value.detail == "truncated"


def test_nothing_is_answered_before_the_end() -> None:
    client, body = sealed_request()
    server = ehbp.EhbpServerRequest([KEY], client.enc)
    server.feed(body)
    with pytest.raises(ChannelMisuse):
        server.response_sealer(rng=os.urandom)
    server.finish()
    sealer = server.response_sealer(rng=os.urandom)
    sealed = sealer.seal_chunk(b"answer" * 9000)
    opener = client.response_opener(sealer.nonce)
    assert b"".join(opener.feed(sealed)) == b"answer" * 9000
    opener.finish()


def test_limits() -> None:
    client, body = sealed_request()
    opened_request(body, client.enc, max_body_bytes=len(body), max_chunks=4)
    for limits, error in (
        (ChunkLimits(max_body_bytes=len(body) - 1), BodyTooLarge),
        (ChunkLimits(max_chunks=3), TooManyChunks),
    ):
        with pytest.raises(error):
            ehbp.EhbpServerRequest([KEY], client.enc, limits=limits).feed(body)
    announced = (1 << 20).to_bytes(4, "big")
    with pytest.raises(BodyTooLarge):
        ehbp.EhbpServerRequest([KEY], client.enc, limits=ChunkLimits(max_body_bytes=1 << 19)).feed(
            announced
        )
    with pytest.raises(DecryptFailed):
        ehbp.EhbpServerRequest([KEY], client.enc).feed((15).to_bytes(4, "big"))


@pytest.mark.parametrize("value", ["", "ab" * 31, "ab" * 33, "zz" * 32, "ab " * 21 + "a", "ä" * 64])
def test_fields_are_32_bytes_in_hex(value: str) -> None:
    with pytest.raises(DecryptFailed) as caught:
        ehbp.parse_field(value)
    assert caught.value.detail == "malformed"


def test_other_keys_and_lengths_are_refused() -> None:
    with pytest.raises(UnsupportedSuite):
        ehbp.EhbpClientRequest(ServerKey.generate(1, kem_id=KEM_XWING).config, rng=os.urandom)
    with pytest.raises(DecryptFailed):
        ehbp.EhbpServerRequest([KEY], bytes(31))
    with pytest.raises(DecryptFailed):
        sealed_request()[0].response_opener(bytes(31))


def test_a_low_order_point_names_no_key() -> None:
    with pytest.raises(KeyConfigError):
        ehbp.EhbpServerRequest([KEY], bytes(32)).feed((16).to_bytes(4, "big") + bytes(16))

"""The framing of chunked OHTTP: its end, its limits, the order of calls, what a failure leaves."""

import os

import pytest

from attestation.channel import (
    BodyTooLarge,
    ChannelError,
    ChannelMisuse,
    ChunkLimits,
    ClientRequest,
    DecryptFailed,
    KeyConfigError,
    ServerRequest,
    Suite,
    TooManyChunks,
    UnsupportedSuite,
)
from attestation.channel.chunks import SEND_CHUNK_BYTES
from attestation.channel.hpke import KEM_XWING
from tests.attestation.channel.exchange import CHUNKS, CLIENT, REQUEST, RESPONSE
from tests.attestation.channel.keys import SERVER_KEY, SERVER_KEYS, fixed_rng

CONFIG = SERVER_KEY.config


def test_the_final_chunk_is_sent_empty_and_may_be_received_full() -> None:
    client = ClientRequest(CONFIG, rng=fixed_rng("final"))
    assert len(client.seal_final()) == 1 + 16
    client = ClientRequest(CONFIG, rng=fixed_rng("final"))
    final = b"\x00" + client._context.seal(b"final", b"data")
    server = ServerRequest(SERVER_KEYS)
    assert server.feed(client.header + final) == []
    assert server.finish() == [b"data"]


def test_an_empty_chunk_is_not_sent_and_not_accepted() -> None:
    client = ClientRequest(CONFIG, rng=fixed_rng("empty"))
    assert client.seal_chunk(b"") == b""
    empty = client._context.seal(b"", b"")
    with pytest.raises(DecryptFailed):
        ServerRequest(SERVER_KEYS).feed(client.header + b"\x10" + empty)


def test_large_data_is_sent_in_chunks_that_every_receiver_takes() -> None:
    client = ClientRequest(CONFIG, rng=fixed_rng("large"))
    message = os.urandom(3 * SEND_CHUNK_BYTES + 1)
    body = client.seal_message(message)
    server = ServerRequest(SERVER_KEYS, limits=ChunkLimits(max_chunk_bytes=SEND_CHUNK_BYTES))
    opened = [*server.feed(body), *server.finish()]
    assert [len(chunk) for chunk in opened] == [SEND_CHUNK_BYTES] * 3 + [1]
    assert b"".join(opened) == message


def test_header_that_names_no_key_is_refused_before_any_work() -> None:
    for header, keys in (
        (b"\x08" + REQUEST[1:], SERVER_KEYS),
        (REQUEST[:1] + b"\x64\x7a" + REQUEST[3:], SERVER_KEYS),
        (REQUEST[:5] + b"\xff\xff" + REQUEST[7:], SERVER_KEYS),
        (REQUEST, {}),
    ):
        server = ServerRequest(keys)
        with pytest.raises(KeyConfigError) as caught:
            server.feed(header[:7])
        assert caught.value.code == "key_config_error"
        with pytest.raises(ChannelMisuse):
            server.feed(header[7:])
    with pytest.raises(UnsupportedSuite):
        ClientRequest(CONFIG, Suite(KEM_XWING), rng=os.urandom)


def test_key_id_and_enc_are_known_with_the_header() -> None:
    server = ServerRequest(SERVER_KEYS)
    server.feed(REQUEST[:38])
    assert (server.key_id, server.enc) == (None, None)
    server.feed(REQUEST[38:39])
    assert (server.key_id, server.enc) == (7, REQUEST[7:39])


@pytest.mark.parametrize(
    ("limits", "error"),
    [
        (ChunkLimits(max_chunks=3), TooManyChunks),
        (ChunkLimits(max_chunk_bytes=139), BodyTooLarge),
        (ChunkLimits(max_body_bytes=len(REQUEST) - 39 - 1), BodyTooLarge),
        (
            ChunkLimits(max_chunks=4, max_chunk_bytes=140, max_body_bytes=len(REQUEST) - 39),
            None,
        ),
    ],
)
def test_limits(limits: ChunkLimits, error: type[ChannelError] | None) -> None:
    server = ServerRequest(SERVER_KEYS, limits=limits)
    if error is None:
        assert server.open_message(REQUEST) == b"".join(CHUNKS)
        return
    with pytest.raises(error):
        server.feed(REQUEST)
    with pytest.raises(ChannelMisuse):
        server.finish()


def test_an_endless_final_chunk_is_refused() -> None:
    opener = CLIENT.response_opener(limits=ChunkLimits(max_chunk_bytes=1000))
    opener.feed(RESPONSE + bytes(1000))
    with pytest.raises(BodyTooLarge):
        opener.feed(b"\x00")


@pytest.mark.parametrize("name", ["max_chunk_bytes", "max_chunks", "max_body_bytes"])
def test_limits_are_tightened_never_widened(name: str) -> None:
    for value in (0, 1 << 31):
        with pytest.raises(ValueError, match=name):
            ChunkLimits(**{name: value})


def test_calls_out_of_order_are_misuse() -> None:
    client = ClientRequest(CONFIG, rng=fixed_rng("order"))
    body = client.seal_message(b"message")
    server = ServerRequest(SERVER_KEYS)
    server.feed(body)
    with pytest.raises(ChannelMisuse):
        server.response_sealer(rng=os.urandom)  # the final chunk is not verified yet
    server.finish()
    sealer = server.response_sealer(rng=os.urandom)
    for call in (
        client.seal_final,
        lambda: client.seal_chunk(b"x"),
        server.finish,
        lambda: server.feed(b"x"),
        sealer.seal_final,
        lambda: sealer.seal_chunk(b"x"),
    ):
        with pytest.raises(ChannelMisuse):
            call()
    sealer.start()
    with pytest.raises(ChannelMisuse):
        sealer.start()
    opener = client.response_opener()
    for error in (DecryptFailed, ChannelMisuse):
        with pytest.raises(error):
            opener.finish() if error is DecryptFailed else opener.feed(b"x")


def test_after_a_failure_nothing_behind_it_is_opened() -> None:
    opener = CLIENT.response_opener()
    bad = bytearray(RESPONSE)
    bad[20] ^= 1
    with pytest.raises(DecryptFailed):
        opener.feed(bytes(bad[:40]))
    with pytest.raises(ChannelMisuse):
        opener.feed(bytes(bad[40:]))


def test_secrets_and_contents_stay_out_of_repr_and_errors() -> None:
    client = ClientRequest(CONFIG, rng=fixed_rng("canary"))
    body = client.seal_message(b"canary in a prompt")
    server = ServerRequest(SERVER_KEYS)
    server.open_message(body)
    sealer = server.response_sealer(rng=os.urandom)
    text = repr((client, client.response_opener(), server, sealer, SERVER_KEY))
    assert "canary" not in text
    assert fixed_rng("canary")(32).hex() not in text
    for detail in ("malformed", "decrypt", "truncated"):
        error = DecryptFailed(detail)
        assert (error.code, str(error)) == ("decrypt_failed", DecryptFailed.TEXT)
        assert detail not in repr(error)

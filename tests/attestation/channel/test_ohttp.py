"""OHTTP, plain and chunked: published exchanges, splitting, truncation, tampering."""

import json
import os
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attestation.channel import (
    BodyTooLarge,
    ChannelError,
    ClientRequest,
    DecryptFailed,
    KeyConfigError,
    MalformedInner,
    PlainClientRequest,
    PlainServerRequest,
    PrivateKey,
    RefusedTarget,
    ServerKey,
    ServerRequest,
    Suite,
    bhttp,
    parse_key_config,
)
from attestation.channel.hpke import KEM_X25519, KEM_XWING, Rng
from tests.attestation.channel.exchange import CHUNKS, CLIENT, REQUEST, RESPONSE, sealed_exchange
from tests.attestation.channel.keys import SERVER_KEY, SERVER_KEYS, fixed_rng
from tests.support.resources import vectors_dir

CONFIG = SERVER_KEY.config


def load(name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((vectors_dir() / "protocol" / name).read_text())
    return document


def returns(value: str) -> Rng:
    """An rng that draws these bytes."""
    return lambda num_bytes: bytes.fromhex(value)[:num_bytes]


def split(message: bytes, lengths: Sequence[int]) -> list[bytes]:
    pieces, start = [], 0
    for length in lengths:
        pieces.append(message[start : start + length])
        start += length
    assert start == len(message)
    return pieces


def server_keys_of(vector: dict[str, Any]) -> dict[int, ServerKey]:
    config = parse_key_config(bytes.fromhex(vector["key_config"]))
    key = PrivateKey.from_bytes(bytes.fromhex(vector["skR"]))
    return {config.key_id: ServerKey(config=config, private_key=key)}


# --- published exchanges -------------------------------------------------------------------


def test_published_exchanges_are_met_bit_for_bit() -> None:
    for vector in load("ohttp.json")["vectors"]:
        (check_chunked if vector["chunked"] else check_plain)(vector)


def check_plain(vector: dict[str, Any]) -> None:
    keys = server_keys_of(vector)
    suite = Suite(vector["kem_id"], vector["kdf_id"], vector["aead_id"])
    client = PlainClientRequest(keys[vector["key_id"]].config, suite, rng=returns(vector["skE"]))
    body = client.seal_message(bytes.fromhex(vector["request_bhttp"]))
    assert body.hex() == vector["encapsulated_request"]
    server = PlainServerRequest(keys, body)
    assert (server.key_id, server.enc.hex()) == (vector["key_id"], vector["enc"])
    assert server.message.hex() == vector["request_bhttp"]
    answer = server.seal_response(
        bytes.fromhex(vector["response_bhttp"]), rng=returns(vector["response_nonce"])
    )
    assert answer.hex() == vector["encapsulated_response"]
    assert client.open_response(answer).hex() == vector["response_bhttp"]


def check_chunked(vector: dict[str, Any]) -> None:
    keys = server_keys_of(vector)
    suite = Suite(vector["kem_id"], vector["kdf_id"], vector["aead_id"])
    client = ClientRequest(keys[vector["key_id"]].config, suite, rng=returns(vector["skE"]))
    sent = split(bytes.fromhex(vector["request_bhttp"]), vector["request_chunk_lengths"])
    body = client.header + b"".join(map(client.seal_chunk, sent)) + client.seal_final()
    assert body.hex() == vector["encapsulated_request"]
    server = ServerRequest(keys)
    assert [*server.feed(body), *server.finish()] == [chunk for chunk in sent if chunk]
    sealer = server.response_sealer(rng=returns(vector["response_nonce"]))
    answered = split(bytes.fromhex(vector["response_bhttp"]), vector["response_chunk_lengths"])
    answer = sealer.start() + b"".join(map(sealer.seal_chunk, answered)) + sealer.seal_final()
    assert answer.hex() == vector["encapsulated_response"]
    opener = client.response_opener()
    assert [*opener.feed(answer), *opener.finish()] == [chunk for chunk in answered if chunk]


def test_published_bad_bodies_are_refused_by_class() -> None:
    document = load("ohttp_negative.json")
    keys = server_keys_of(document)
    for vector in document["vectors"]:
        body, expect = bytes.fromhex(vector["body"]), vector["expect"]
        assert outcome(keys, body, vector["content_type"], expect) == expect, vector["id"]


def outcome(keys: dict[int, ServerKey], body: bytes, content_type: str, expect: str) -> str:
    try:
        if content_type == "message/ohttp-req":
            message = PlainServerRequest(keys, body).message
        else:
            message = ServerRequest(keys).open_message(body)
        bhttp.parse_request(message)
    except DecryptFailed as err:
        if expect == "reject":
            return expect
        return "decrypt_error" if err.detail == "decrypt" else err.detail
    except MalformedInner:
        return "malformed_inner"
    except (KeyConfigError, RefusedTarget) as err:
        return err.code
    return "accept"


# --- one exchange, every way ---------------------------------------------------------------


@pytest.mark.parametrize("aead_id", [1, 2, 3])
@pytest.mark.parametrize("kem_id", [KEM_X25519, KEM_XWING])
def test_every_suite_round_trips(kem_id: int, aead_id: int) -> None:
    keys = {7: ServerKey.generate(7, kem_id=kem_id)}
    suite = Suite(kem_id, 1, aead_id)
    body, answer, client = sealed_exchange(suite, keys)
    assert ServerRequest(keys).open_message(body) == b"".join(CHUNKS)
    assert client.response_opener().open_message(answer) == b"".join(CHUNKS)
    plain = PlainClientRequest(keys[7].config, suite, rng=os.urandom)
    opened = PlainServerRequest(keys, plain.seal_message(b"message"))
    assert opened.message == b"message"
    assert plain.open_response(opened.seal_response(b"answer", rng=os.urandom)) == b"answer"


@settings(deadline=None)
@given(st.data())
def test_any_split_of_the_stream_gives_the_same_chunks(data: st.DataObject) -> None:
    for body, opener in (
        (REQUEST, ServerRequest(SERVER_KEYS)),
        (RESPONSE, CLIENT.response_opener()),
    ):
        cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=12)))
        opened: list[bytes] = []
        for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True):
            opened += opener.feed(body[start:end])
        assert opened + opener.finish() == CHUNKS


def test_byte_by_byte_gives_each_chunk_with_its_last_byte() -> None:
    opener = CLIENT.response_opener()
    opened = [chunk for byte in RESPONSE for chunk in opener.feed(bytes([byte]))]
    assert opened == CHUNKS
    assert opener.finish() == []


def test_every_truncation_is_detected() -> None:
    for length in range(len(REQUEST)):
        with pytest.raises(DecryptFailed):
            ServerRequest(SERVER_KEYS).open_message(REQUEST[:length])
    for length in range(len(RESPONSE)):
        with pytest.raises(DecryptFailed):
            CLIENT.response_opener().open_message(RESPONSE[:length])


def test_truncation_at_a_chunk_boundary_says_so() -> None:
    without_final = len(RESPONSE) - 17
    for end in (without_final, without_final + 1):
        opener = CLIENT.response_opener()
        assert opener.feed(RESPONSE[:end]) == CHUNKS
        with pytest.raises(DecryptFailed) as caught:
            opener.finish()
        assert caught.value.detail == "truncated"


def test_any_flipped_bit_is_refused() -> None:
    for index in range(len(REQUEST)):
        for bit in range(8):
            bad = bytearray(REQUEST)
            bad[index] ^= 1 << bit
            with pytest.raises((DecryptFailed, KeyConfigError, BodyTooLarge)):
                ServerRequest(SERVER_KEYS).open_message(bytes(bad))
    for index in range(len(RESPONSE)):
        bad = bytearray(RESPONSE)
        bad[index] ^= 1 << (index % 8)
        with pytest.raises((DecryptFailed, BodyTooLarge)):
            CLIENT.response_opener().open_message(bytes(bad))


def test_plain_messages_refuse_any_flipped_bit_and_any_cut() -> None:
    client = PlainClientRequest(CONFIG, rng=fixed_rng("plain"))
    body = client.seal_message(b"message")
    answer = PlainServerRequest(SERVER_KEYS, body).seal_response(b"answer", rng=fixed_rng("n"))
    for index in range(len(body)):
        bad = body[:index] + bytes([body[index] ^ 1 << (index % 8)]) + body[index + 1 :]
        for wrong in (bad, body[:index]):
            with pytest.raises((DecryptFailed, KeyConfigError)):
                PlainServerRequest(SERVER_KEYS, wrong)
    for index in range(len(answer)):
        bad = answer[:index] + bytes([answer[index] ^ 1 << (index % 8)]) + answer[index + 1 :]
        for wrong in (bad, answer[:index]):
            with pytest.raises(DecryptFailed):
                client.open_response(wrong)


def test_mutations_raise_only_our_errors() -> None:
    rng = random.Random(9458)
    for _ in range(2000):
        is_request = rng.random() < 0.5
        bad = bytearray(REQUEST if is_request else RESPONSE)
        for _ in range(rng.randint(1, 6)):
            match rng.randrange(3):
                case 0 if bad:
                    bad[rng.randrange(len(bad))] = rng.randrange(256)
                case 1:
                    at = rng.randrange(len(bad) + 1)
                    del bad[at : at + rng.randrange(9)]
                case _:
                    at = rng.randrange(len(bad) + 1)
                    bad[at:at] = rng.randbytes(rng.randrange(9))
        original = REQUEST if is_request else RESPONSE
        opener = ServerRequest(SERVER_KEYS) if is_request else CLIENT.response_opener()
        try:
            opened = opener.open_message(bytes(bad))
        except ChannelError:
            continue
        assert opened == b"".join(CHUNKS)
        assert bytes(bad) == original


def test_a_streamed_answer_is_relayed_event_by_event() -> None:
    """The example in ohttp.py's docstring, with the network replaced by a list."""
    client = ClientRequest(CONFIG, rng=fixed_rng("relay"))
    inner = bhttp.Request(method="POST", path="/v1/chat/completions", content=b"{}")
    server = ServerRequest(SERVER_KEYS)
    message = bhttp.parse_request(
        server.open_message(client.seal_message(bhttp.serialize_request(inner)))
    )
    assert message == inner
    sealer = server.response_sealer(rng=fixed_rng("relay nonce"))
    head = bhttp.ResponseHead(status=200, fields=(("content-type", "text/event-stream"),))
    events = [f"data: {number}\n\n".encode() for number in range(20)]
    sent = [sealer.start() + sealer.seal_chunk(bhttp.serialize_response_head(head))]
    sent += [sealer.seal_chunk(bhttp.serialize_content_chunk(event)) for event in events]
    sent += [sealer.seal_chunk(bhttp.serialize_end()) + sealer.seal_final()]
    opener, parser, relayed = client.response_opener(), bhttp.ResponseParser(), []
    for data in sent:
        relayed += [content for chunk in opener.feed(data) for content in parser.feed(chunk)]
        assert parser.head == head
    relayed += [content for chunk in opener.finish() for content in parser.feed(chunk)]
    parser.finish()
    assert relayed == events

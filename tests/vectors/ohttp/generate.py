"""Writes this folder's vectors: ``python -m tests.vectors.ohttp.generate``.

Every key and nonce is fixed, so the files never change unless the wire format does.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from attestation.channel import (
    ClientRequest,
    PlainClientRequest,
    PlainServerRequest,
    PrivateKey,
    ServerKey,
    ServerRequest,
    Suite,
    bhttp,
)
from attestation.channel.hpke import KEM_X25519

FOLDER = Path(__file__).parent
KEY_ID = 7
REQUEST = bhttp.Request(
    method="POST",
    authority="worker-0",
    path="/v1/chat/completions",
    fields=(("content-type", "application/json"),),
    content=b'{"messages":[]}',
)
EVENTS = (b"data: one\n\n", b"data: two\n\n", b"data: [DONE]\n\n")

RFC9458_REQUEST = bytes.fromhex("00034745540568747470730b6578616d706c652e636f6d012f")
RFC9458_RESPONSE = bytes.fromhex("0140c8")
PUBLISHED_PLAIN = {
    "key_id": 1,
    "server_secret": "3c168975674b2fa8e465970b79c8dcf09f1c741626480bd4c6162fc5b6a98e1a",
    "ephemeral": "bc51d5e930bda26589890ac7032f70ad12e4ecb37abb1b65b1256c9c48999c73",
    "response_nonce": "c789e7151fcba46158ca84b04464910d",
    "encapsulated_request": "010020000100014b28f881333e7c164ffc499ad9796f877f4e1051ee6d31bad19dec"
    "96c208b4726374e469135906992e1268c594d2a10c695d858c40a026e7965e7d86b83dd440b2c0185204b4d63525",
    "encapsulated_response": "c789e7151fcba46158ca84b04464910d86f9013e404feea014e7be4a441f234f857f"
    "bd",
}
PUBLISHED_CHUNKED = {
    "key_id": 1,
    "server_secret": "1c190d72acdbe4dbc69e680503bb781a932c70a12c8f3754434c67d8640d8698",
    "ephemeral": "b26d565f3f875ed480d1abced3d665159650c99174fd0b124ac4bda0c64ae324",
    "response_nonce": "bcce7f4cb921309ba5d62edf1769ef09",
    "encapsulated_request": "010020000100018811eb457e100811c40a0aa71340a1b81d804bb986f736f2f566a7"
    "199761a0321c2ad24942d4d692563012f2980c8fef437a336b9b2fc938ef77a5834f1d2e33d8fd25577afe31bd1c"
    "79d094f76b6250ae6549b473ecd950501311001c6c1395d0ef7c1022297966307b8a7f",
    "encapsulated_response": "bcce7f4cb921309ba5d62edf1769ef091179bf1cc87fa0e2c02de4546945aa3d1e48"
    "12b348b5bd4c594c16b6170b07b475845d1f3200ed9d8a796617a5b27265f4d73247f639",
}


def fixed(label: str, num_bytes: int) -> bytes:
    """Bytes that anyone can derive again from their label."""
    return hashlib.shake_256(b"starshade/vectors/ohttp/" + label.encode()).digest(num_bytes)


SERVER_SECRET = fixed("server", 32)
SERVER_KEY = ServerKey.from_private_key(KEY_ID, PrivateKey.from_bytes(SERVER_SECRET))


def vectors() -> Iterator[tuple[str, dict[str, Any]]]:
    """(file name, document) of every vector, in order."""
    cases = [*_exchanges(), *_refusals()]
    for number, (name, document) in enumerate(cases, start=1):
        yield f"{number:03}-{name}.json", document


def _exchanges() -> Iterator[tuple[str, dict[str, Any]]]:
    plain = {"request": [RFC9458_REQUEST], "response": [RFC9458_RESPONSE]}
    pieces = {
        "request": [RFC9458_REQUEST[:12], RFC9458_REQUEST[12:]],
        "response": [RFC9458_RESPONSE[:1], RFC9458_RESPONSE[1:]],
    }
    yield "rfc9458-appendix-a", _published("RFC 9458 Appendix A", PUBLISHED_PLAIN, plain)
    source = "draft-ietf-ohai-chunked-ohttp Appendix A"
    yield "chunked-draft-appendix-a", _published(source, PUBLISHED_CHUNKED, pieces)
    for aead_id in (1, 2, 3):
        yield f"plain-aead-{aead_id}", _made_exchange("plain", aead_id)
        yield f"chunked-aead-{aead_id}", _made_exchange("chunked", aead_id)


def _published(
    source: str, published: dict[str, Any], messages: dict[str, list[bytes]]
) -> dict[str, Any]:
    framing = "plain" if len(messages["request"]) == 1 else "chunked"
    inputs = {
        "framing": framing,
        "key_id": published["key_id"],
        "aead_id": 1,
        **{name: published[name] for name in ("server_secret", "ephemeral", "response_nonce")},
        **{name: [piece.hex() for piece in pieces] for name, pieces in messages.items()},
    }
    names = ("encapsulated_request", "encapsulated_response")
    return {"source": source, "input": inputs, "expect": {name: published[name] for name in names}}


def _made_exchange(framing: str, aead_id: int) -> dict[str, Any]:
    request = bhttp.serialize_request(REQUEST)
    head = bhttp.ResponseHead(status=200, fields=(("content-type", "text/event-stream"),))
    response = [
        bhttp.serialize_response_head(head),
        *map(bhttp.serialize_content_chunk, EVENTS),
        bhttp.serialize_end(),
    ]
    is_plain = framing == "plain"
    nonce_bytes = 32 if aead_id > 1 else 16
    inputs = {
        "framing": framing,
        "key_id": KEY_ID,
        "aead_id": aead_id,
        "server_secret": SERVER_SECRET.hex(),
        "ephemeral": fixed(f"ephemeral/{framing}/{aead_id}", 32).hex(),
        "response_nonce": fixed(f"nonce/{framing}/{aead_id}", nonce_bytes).hex(),
        "request": [request.hex()] if is_plain else [request[:20].hex(), request[20:].hex()],
        "response": [b"".join(response).hex()] if is_plain else [each.hex() for each in response],
    }
    source = "RFC 9458 sec. 4" if is_plain else "draft-ietf-ohai-chunked-ohttp sec. 3"
    return {"source": source, "input": inputs, "expect": exchange(inputs)}


def exchange(inputs: dict[str, Any]) -> dict[str, str]:
    """Both encapsulated messages of an exchange, sealed and opened again on the way."""
    key = PrivateKey.from_bytes(bytes.fromhex(inputs["server_secret"]))
    keys = {inputs["key_id"]: ServerKey.from_private_key(inputs["key_id"], key)}
    suite = Suite(KEM_X25519, 1, inputs["aead_id"])
    config = keys[inputs["key_id"]].config
    request, response = (
        [bytes.fromhex(piece) for piece in inputs[name]] for name in ("request", "response")
    )
    ephemeral, nonce = _draws(inputs["ephemeral"]), _draws(inputs["response_nonce"])
    if inputs["framing"] == "plain":
        plain = PlainClientRequest(config, suite, rng=ephemeral)
        body = plain.seal_message(request[0])
        answer = PlainServerRequest(keys, body).seal_response(response[0], rng=nonce)
        opened = plain.open_response(answer)
    else:
        client = ClientRequest(config, suite, rng=ephemeral)
        body = client.header + b"".join(map(client.seal_chunk, request)) + client.seal_final()
        server = ServerRequest(keys)
        server.open_message(body)
        sealer = server.response_sealer(rng=nonce)
        answer = sealer.start() + b"".join(map(sealer.seal_chunk, response)) + sealer.seal_final()
        opened = client.response_opener().open_message(answer)
    if opened != b"".join(response):
        raise RuntimeError("the exchange does not open to what was sealed")
    return {"encapsulated_request": body.hex(), "encapsulated_response": answer.hex()}


def _refusals() -> Iterator[tuple[str, dict[str, Any]]]:
    message = bhttp.serialize_request(REQUEST)
    client = ClientRequest(SERVER_KEY.config, rng=_draws(fixed("refusals", 32).hex()))
    header, first = client.header, client.seal_chunk(message[:20])
    second, final = client.seal_chunk(message[20:]), client.seal_final()
    mutants = {
        "accepted": ("none", header + first + second + final),
        "empty-body": ("malformed", b""),
        "short-header": ("malformed", header[:6]),
        "short-enc": ("malformed", header[:-1]),
        "no-final": ("truncated", header + first + second),
        "final-marker-only": ("truncated", header + first + second + b"\x00"),
        "cut-in-chunk": ("truncated", header + first[:-1]),
        "flipped-enc": ("decrypt", _flip(header, 7) + first + second + final),
        "flipped-chunk": ("decrypt", header + _flip(first) + second + final),
        "flipped-final": ("decrypt", header + first + second + _flip(final)),
        "reordered": ("decrypt", header + second + first + final),
        "dropped": ("decrypt", header + second + final),
        "repeated": ("decrypt", header + first + first + second + final),
        "chunk-as-final": ("decrypt", header + first + b"\x00" + second[2:]),
        "final-as-chunk": ("decrypt", header + first + second + b"\x10" + final[1:]),
        "trailing-byte": ("decrypt", header + first + second + final + b"\x00"),
        "less-than-a-tag": ("decrypt", header + b"\x0f" + bytes(15) + final),
    }
    for name, (detail, body) in mutants.items():
        code = None if detail == "none" else "decrypt_failed"
        yield name, _refusal(body, {"code": code, "detail": detail if code else None})
    for name, bad_header in {
        "unknown-key-id": b"\x08" + header[1:],
        "other-kem": header[:1] + b"\x64\x7a" + header[3:],
        "export-only-aead": header[:5] + b"\xff\xff" + header[7:],
    }.items():
        body = bad_header + first + second + final
        yield name, _refusal(body, {"code": "key_config_error", "detail": None})


def _refusal(body: bytes, expect: dict[str, str | None]) -> dict[str, Any]:
    inputs = {"key_id": KEY_ID, "server_secret": SERVER_SECRET.hex(), "body": body.hex()}
    source = "draft-ietf-ohai-chunked-ohttp sec. 3"
    return {"source": source, "input": inputs, "expect": expect}


def _flip(data: bytes, index: int = -1) -> bytes:
    """One bit of one byte, the last unless told otherwise."""
    flipped = bytearray(data)
    flipped[index] ^= 1
    return bytes(flipped)


def _draws(value: str) -> Callable[[int], bytes]:
    return lambda num_bytes: bytes.fromhex(value)[:num_bytes]


def render(document: dict[str, Any]) -> str:
    """The text of one file."""
    return json.dumps(document, indent=1) + "\n"


def main() -> None:
    """Replaces every vector of this folder."""
    for old in FOLDER.glob("*.json"):
        old.unlink()
    for name, document in vectors():
        (FOLDER / name).write_text(render(document))


if __name__ == "__main__":
    main()

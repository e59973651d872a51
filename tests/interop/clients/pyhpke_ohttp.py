"""RFC 9458 on the unmodified `pyhpke`, an oracle for our own HPKE; run in the clients' environment.

`pyhpke_ohttp.py BASE_URL CA_FILE API_KEY MODEL SECONDS` asks for SECONDS, through key rotations,
whole and streamed, with each AEAD in turn, and prints what it got as one JSON object.
"""

import json
import ssl
import sys
import time
from dataclasses import dataclass

import httpx
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from pyhpke import AEADId, CipherSuite, KDFId, KEMId

X25519 = 0x0020
AEADS = {1: (AEADId.AES128_GCM, 16), 2: (AEADId.AES256_GCM, 32), 3: (AEADId.CHACHA20_POLY1305, 32)}


@dataclass(frozen=True)
class Answer:
    status: int
    content: str


def sized(data: bytes) -> bytes:
    """A QUIC varint of two bytes and what it is the length of."""
    return (0x4000 | len(data)).to_bytes(2, "big") + data


def varint(data: bytes, at: int) -> tuple[int, int]:
    end = at + (1 << (data[at] >> 6))
    return int.from_bytes(bytes([data[at] & 0x3F]) + data[at + 1 : end], "big"), end


def bhttp_request(body: dict[str, object], api_key: str) -> bytes:
    fields = {"authorization": f"Bearer {api_key}", "content-type": "application/json"}
    lines = b"".join(sized(k.encode()) + sized(v.encode()) for k, v in fields.items())
    control = (b"POST", b"https", b"gateway", b"/v1/chat/completions")
    content = json.dumps(body).encode()
    return b"\x00" + b"".join(map(sized, control)) + sized(lines) + sized(content) + b"\x00"


def parse_response(data: bytes) -> Answer:
    """The known-length form."""
    framing, at = varint(data, 0)
    assert framing == 1
    status, at = varint(data, at)
    length, at = varint(data, at)
    length, at = varint(data, at + length)
    return Answer(status, data[at : at + length].decode())


def x25519_key(http: httpx.Client) -> tuple[int, bytes]:
    data, at = http.get("/.well-known/ohttp-gateway").content, 0
    while data[at + 3 : at + 5] != X25519.to_bytes(2, "big"):
        at += 2 + int.from_bytes(data[at : at + 2], "big")
    return data[at + 2], data[at + 5 : at + 37]


def ask(http: httpx.Client, aead_id: int, message: bytes) -> Answer:
    aead, key_bytes = AEADS[aead_id]
    suite = CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, aead)
    key_id, public_key = x25519_key(http)
    header = bytes([key_id]) + b"".join(i.to_bytes(2, "big") for i in (X25519, 1, aead_id))
    enc, sender = suite.create_sender_context(
        suite.kem.deserialize_public_key(public_key),
        info=b"message/bhttp request\x00" + header,
    )
    body = header + enc + sender.seal(message, aad=b"")
    answer = http.post("/ohttp", content=body, headers={"content-type": "message/ohttp-req"})
    answer.raise_for_status()
    nonce, sealed = answer.content[:key_bytes], answer.content[key_bytes:]
    secret = sender.export(b"message/bhttp response", key_bytes)

    def derived(label: bytes, length: int) -> bytes:
        hkdf = HKDF(algorithm=SHA256(), length=length, salt=enc + nonce, info=label)
        return hkdf.derive(secret)

    cipher = ChaCha20Poly1305 if aead_id == 3 else AESGCM
    opened = cipher(derived(b"key", key_bytes)).decrypt(derived(b"nonce", 12), sealed, b"")
    return parse_response(opened)


def streamed_text(content: str) -> str:
    events = [event[6:] for event in content.split("\n\n") if event.startswith("data: ")]
    assert events.pop() == "[DONE]"
    deltas = (json.loads(event)["choices"][0]["delta"] for event in events)
    return "".join(delta.get("content") or "" for delta in deltas)


def main(base: str, ca_file: str, api_key: str, model: str, seconds: str) -> None:
    http = httpx.Client(base_url=base, verify=ssl.create_default_context(cafile=ca_file))
    body: dict[str, object] = {
        "model": model,
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 8,
        "temperature": 0,
    }
    texts: set[str] = set()
    num_requests, end = 0, time.monotonic() + float(seconds)
    while time.monotonic() < end:
        for aead_id in AEADS:
            whole = ask(http, aead_id, bhttp_request(body, api_key))
            texts.add(json.loads(whole.content)["choices"][0]["message"]["content"])
            streamed = ask(http, aead_id, bhttp_request({**body, "stream": True}, api_key))
            texts.add(streamed_text(streamed.content))
            num_requests += 2
    error = ask(http, 1, bhttp_request({**body, "model": "no-such-model"}, api_key))
    assert error.status == 404
    code = json.loads(error.content)["error"]["code"]
    report = {"texts": sorted(texts), "num_requests": num_requests, "refused": code}
    sys.stdout.write(json.dumps(report))


if __name__ == "__main__":
    main(*sys.argv[1:])

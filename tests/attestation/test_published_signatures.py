"""Ed25519 and SHA-256 as others publish them: a signed receipt of aci/1 and RFC 9421 B.2.6."""

import base64
import hashlib
import json
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tests.support.resources import vectors_dir


def load(name: str) -> dict[str, dict[str, Any]]:
    document = json.loads((vectors_dir() / "protocol" / name).read_text())
    return {vector["id"]: vector for vector in document["vectors"]}


def url_bytes(value: str) -> bytes:
    return base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))


def test_the_receipt_of_the_aci_chain() -> None:
    receipt = load("aci_chain.json")["receipt"]
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(receipt["ed25519_seed"]))
    signed = receipt["signing_input"].encode()
    assert hashlib.sha256(signed).hexdigest() == receipt["sha256"]
    assert key.sign(signed).hex() == receipt["signature"]
    with pytest.raises(InvalidSignature):
        key.public_key().verify(bytes.fromhex(receipt["signature"]), signed + b" ")


def test_the_chain_names_the_keyset_of_its_first_link() -> None:
    chain = load("aci_chain.json")
    keyset, statement = chain["keyset"], chain["statement-nonce"]
    assert hashlib.sha256(keyset["jcs"].encode()).hexdigest() == keyset["sha256"]
    assert hashlib.sha256(statement["bytes"].encode()).hexdigest() == statement["sha256"]
    named = f"sha256:{keyset['sha256']}"
    assert json.loads(statement["bytes"])["keyset_digest"] == named
    assert json.loads(chain["receipt"]["signing_input"])["workload_keyset_digest"] == named


def test_the_http_signature_of_rfc_9421() -> None:
    vector = load("http_signature.json")["rfc9421-B.2.6"]
    key = Ed25519PrivateKey.from_private_bytes(url_bytes(vector["private_d"]))
    public_key = Ed25519PublicKey.from_public_bytes(url_bytes(vector["public_x"]))
    assert key.public_key() == public_key
    base, signature = vector["signature_base"].encode(), base64.b64decode(vector["signature_b64"])
    assert key.sign(base) == signature
    public_key.verify(signature, base)

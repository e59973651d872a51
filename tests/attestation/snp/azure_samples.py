"""An Azure blob and a TPM quote under fake keys, good by default."""

import base64
import hashlib
import json
import struct
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding

from tests.support.fake_snp import FakeSnp, rsa_key

NONCE = bytes(range(32))
PCRS = {0: b"\1" * 32, 7: b"\2" * 32, 11: b"\3" * 32}


def uint(value: int) -> str:
    """A number as a JWK holds it."""
    raw = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def jwk(name: str = "ak", **changes: Any) -> dict[str, Any]:
    """The AK as the runtime JSON names it."""
    numbers = rsa_key(name).public_key().public_numbers()
    key = {"kid": "HCLAkPub", "key_ops": ["sign"], "kty": "RSA"}
    return key | {"e": uint(numbers.e), "n": uint(numbers.n)} | changes


def runtime_json(*keys: dict[str, Any]) -> bytes:
    """The runtime JSON with these keys."""
    named = list(keys) or [jwk(), jwk("other", kid="HCLEkPub")]
    return json.dumps({"keys": named, "vm-configuration": {"secure-boot": True}}).encode()


def report_data(text: bytes, algorithm: str = "sha256") -> bytes:
    """What the paravisor asks the report to hold."""
    return hashlib.new(algorithm, text).digest().ljust(64, b"\0")


def hcl(
    text: bytes | None = None,
    *,
    report: bytes | None = None,
    hash_type: int = 1,
    report_type: int = 2,
    version: int = 2,
    tail: bytes = bytes(64),
) -> bytes:
    """The blob; the report vouches for ``text`` unless another one is given."""
    text = runtime_json() if text is None else text
    report = report or FakeSnp().report(report_data=report_data(text))
    header = struct.pack("<4sIIII12s", b"HCLA", version, 1236 + len(text), 2, 0, bytes(12))
    runtime = struct.pack("<IIIII", 20 + len(text), 1, report_type, hash_type, len(text))
    return header + report + runtime + text + tail


def selection(*pcrs: int, bank: int = 0x000B) -> bytes:
    """One TPMS_PCR_SELECTION."""
    bitmap = sum(1 << index for index in pcrs)
    return struct.pack(">HB", bank, 3) + bitmap.to_bytes(3, "little")


def quote(
    nonce: bytes = NONCE,
    *,
    magic: int = 0xFF544347,
    kind: int = 0x8018,
    selections: tuple[bytes, ...] = (selection(*PCRS),),
) -> bytes:
    """A TPMS_ATTEST of PCRS."""
    digest = hashlib.sha256(b"".join(PCRS[index] for index in sorted(PCRS))).digest()
    return b"".join(
        (
            struct.pack(">IH", magic, kind),
            struct.pack(">H", 34) + b"\0\x0b" + bytes(32),
            struct.pack(">H", len(nonce)) + nonce,
            bytes(17 + 8),
            struct.pack(">I", len(selections)) + b"".join(selections),
            struct.pack(">H", len(digest)) + digest,
        )
    )


def sign_quote(attest: bytes, name: str = "ak") -> bytes:
    """The TPMT_SIGNATURE of the AK."""
    signature = rsa_key(name).sign(attest, padding.PKCS1v15(), hashes.SHA256())
    return struct.pack(">HHH", 0x0014, 0x000B, len(signature)) + signature


HCL = hcl()
QUOTE = quote()
QUOTE_SIGNATURE = sign_quote(QUOTE)

"""Azure: does the SNP report vouch for this virtual TPM, and did that TPM answer our nonce?

On Azure a paravisor asks for the report once at boot, so REPORT_DATA holds no nonce of ours. It
holds the hash of a JSON text that names the TPM's attestation key (AK); freshness comes from a TPM
quote by that key alone. [Azure confidential VM guest attestation: HCL report; TPM 2.0 part 2]
"""

import base64
import binascii
import hashlib
import hmac
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from attestation.errors import (
    BadSignature,
    MalformedEvidence,
    StaleEvidence,
    UnsupportedEvidence,
)
from attestation.snp.report import REPORT_BYTES
from attestation.snp.tpm import TpmQuote, parse_tpm_quote, parse_tpm_signature
from attestation.strict_json import JsonObject, array, parse_object, text

NONCE_BYTES = 32
MAX_HCL_BYTES = 16 * 1024
MAX_JSON_BYTES = 8 * 1024
MAX_JSON_DEPTH = 8
MAX_KEYS = 8
SNP_REPORT_TYPE = 2
HCL_VERSIONS = (1, 2)
AK_NAME = "HCLAkPub"
AK_MIN_BITS, AK_MAX_BITS = 2048, 4096
_HEADER = struct.Struct("<4sIIII12s")  # magic, version, report bytes, request type, status, 0
_RUNTIME = struct.Struct("<IIIII")  # bytes, version, report type, hash type, JSON bytes
_MAGIC = b"HCLA"
_HASHES = {1: hashlib.sha256, 2: hashlib.sha384, 3: hashlib.sha512}


@dataclass(frozen=True, slots=True, kw_only=True)
class HclReport:
    """The parts of an HCL blob, nothing verified: the report's bytes, the JSON text as received."""

    report: bytes
    hash_type: int
    runtime_json: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class AttestedRuntime:
    """Made by ``require_runtime`` alone: the JSON that REPORT_DATA vouches for, and its AK."""

    ak: rsa.RSAPublicNumbers
    claims: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class TpmAnswer:
    """TPMS_ATTEST and TPMT_SIGNATURE as received, and the nonce that was asked with."""

    attest: bytes
    signature: bytes
    nonce: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshQuote:
    """Made by ``verify_tpm_quote`` alone: signed by an attested AK, over our nonce."""

    quote: TpmQuote


def parse_hcl(data: bytes) -> HclReport:
    """The blob of NV index 0x01400001; zeros may follow what its header counts.

    Raises: MalformedEvidence: format, trailing_bytes; UnsupportedEvidence: unsupported_tee (a TDX
    report), unsupported_version, unsupported_algorithm.
    """
    runtime_at = _HEADER.size + REPORT_BYTES
    json_at = runtime_at + _RUNTIME.size
    if not json_at <= len(data) <= MAX_HCL_BYTES:
        raise MalformedEvidence("format", f"HCL blob: {len(data)} bytes")
    magic, version, num_bytes, _, _, reserved = _HEADER.unpack_from(data)
    if magic != _MAGIC or any(reserved):
        raise MalformedEvidence("format", "HCL blob: has not its header")
    if version not in HCL_VERSIONS:
        raise UnsupportedEvidence("unsupported_version", f"HCL blob: version {version}")
    runtime_bytes, _, report_type, hash_type, json_bytes = _RUNTIME.unpack_from(data, runtime_at)
    if report_type != SNP_REPORT_TYPE:
        raise UnsupportedEvidence("unsupported_tee", f"HCL blob: report type {report_type}, want 2")
    if hash_type not in _HASHES:
        raise UnsupportedEvidence("unsupported_algorithm", f"HCL blob: hash type {hash_type}")
    end = json_at + json_bytes
    if runtime_bytes != _RUNTIME.size + json_bytes or num_bytes != end or end > len(data):
        raise MalformedEvidence("format", "HCL blob: its three lengths do not agree")
    if any(data[end:]):
        raise MalformedEvidence("trailing_bytes", "HCL blob: bytes after the runtime data")
    return HclReport(
        report=data[_HEADER.size : runtime_at],
        hash_type=hash_type,
        runtime_json=data[json_at:end],
    )


def require_runtime(hcl: HclReport, report_data: bytes) -> AttestedRuntime:
    """The runtime JSON once REPORT_DATA (64 bytes, of a verified report) is its hash.

    Raises: StaleEvidence("report_data"); MalformedEvidence("format"); BadSignature("bad_key").
    """
    digest = _HASHES[hcl.hash_type](hcl.runtime_json).digest()
    if not hmac.compare_digest(digest.ljust(len(report_data), b"\0"), report_data):
        raise StaleEvidence("report_data", "REPORT_DATA is not the hash of the runtime JSON")
    what = "HCL runtime JSON"
    claims = parse_object(
        hcl.runtime_json, what=what, max_bytes=MAX_JSON_BYTES, max_depth=MAX_JSON_DEPTH
    )
    keys = array(claims.get("keys"), f"{what}: keys", max_items=MAX_KEYS)
    named = [key for key in keys if isinstance(key, Mapping) and key.get("kid") == AK_NAME]
    if len(named) != 1:
        raise MalformedEvidence("format", f"{what}: {len(named)} keys named {AK_NAME}, want 1")
    return AttestedRuntime(ak=_rsa_key(named[0]), claims=claims)


def require_ak(runtime: AttestedRuntime, presented: rsa.RSAPublicNumbers) -> None:
    """A key that came by another way, as the AK's certificate does, is the attested one: n and e.

    Raises: StaleEvidence("channel_binding").
    """
    if presented != runtime.ak:
        raise StaleEvidence("channel_binding", "the TPM's key is not the one in the runtime JSON")


def verify_tpm_quote(
    attest: bytes, signature: bytes, *, runtime: AttestedRuntime, nonce: bytes
) -> FreshQuote:
    """The TPMS_ATTEST once the attested AK signed it (TPMT_SIGNATURE) over ``nonce`` (32 bytes).

    Raises: MalformedEvidence: format, trailing_bytes, nonce_length;
    UnsupportedEvidence("unsupported_algorithm"); BadSignature("quote_signature");
    StaleEvidence("nonce_mismatch").
    """
    if len(nonce) != NONCE_BYTES:
        raise MalformedEvidence("nonce_length", f"nonce: {len(nonce)} bytes, want {NONCE_BYTES}")
    quote = parse_tpm_quote(attest)
    try:
        runtime.ak.public_key().verify(
            parse_tpm_signature(signature), attest, padding.PKCS1v15(), hashes.SHA256()
        )
    except InvalidSignature as err:
        raise BadSignature("quote_signature", "TPM quote is not signed by the attested AK") from err
    if not hmac.compare_digest(quote.extra_data, nonce):
        raise StaleEvidence("nonce_mismatch", "TPM quote answers another nonce")
    return FreshQuote(quote=quote)


def _rsa_key(key: JsonObject) -> rsa.RSAPublicNumbers:
    what = f"HCL runtime JSON: {AK_NAME}"
    if key.get("kty") != "RSA":
        raise BadSignature("bad_key", f"{what}: not an RSA key")
    n, e = (_base64url_uint(key.get(name), f"{what}.{name}") for name in ("n", "e"))
    if not AK_MIN_BITS <= n.bit_length() <= AK_MAX_BITS or n % 2 == 0:
        raise BadSignature("bad_key", f"{what}: modulus of {n.bit_length()} bits")
    if e != 65537:
        raise BadSignature("bad_key", f"{what}: exponent is not 65537")
    return rsa.RSAPublicNumbers(e, n)


def _base64url_uint(value: object, what: str) -> int:
    encoded = text(value if isinstance(value, str) else None, what)
    try:
        raw = base64.b64decode(encoded + "=" * (-len(encoded) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as err:
        raise MalformedEvidence("format", f"{what}: not base64url") from err
    if not raw or base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii") != encoded:
        raise MalformedEvidence("format", f"{what}: not canonical base64url")
    return int.from_bytes(raw, "big")

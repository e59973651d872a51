"""What does REPORT_DATA commit to?  The nonce, the keyset and the GPU evidence, one encoding.

    keyset_digest = SHA-256(JCS(keyset))
    gpu_nonce     = SHA-256("starshade/gpu/v1" || nonce || keyset_digest)
    gpu_sha256    = SHA-256(JCS(gpu array))
    statement     = {"gpu_sha256":"..","keyset":"sha256:..","nonce":"..","purpose":".."}
    REPORT_DATA   = SHA-256(statement) || 32 zero bytes

JCS is RFC 8785 without floats, which no document of ours holds.
"""

import hashlib
import hmac
import json
from collections.abc import Callable, Mapping, Sequence

from attestation.errors import MalformedEvidence, StaleEvidence
from attestation.model import EvidenceBundle, GpuEntry, Nonce
from attestation.strict_json import MAX_SAFE_INTEGER, JsonObject, JsonValue, parse_object

PURPOSE = "starshade/report_data/v1"
_GPU_CONTEXT = b"starshade/gpu/v1"
_quoted = json.JSONEncoder(ensure_ascii=False).encode  # of a string; `dumps` makes one each time
_MAX_STATEMENT_BYTES = 512  # the canonical statement has 276


def jcs(value: JsonValue) -> bytes:
    """The canonical bytes of ``value``.  [RFC 8785]

    Raises: MalformedEvidence("format"): a float, an integer beyond 2**53 - 1, a lone surrogate.
    """
    try:
        return canonical(value, number=_integer).encode("utf-8")
    except UnicodeEncodeError as err:
        raise MalformedEvidence("format", "JCS: lone surrogate in a string") from err


def keyset_digest(keyset: JsonObject) -> bytes:
    """SHA-256 of the canonical keyset, 32 bytes."""
    return hashlib.sha256(jcs(keyset)).digest()


def gpu_nonce(nonce: Nonce, digest: bytes) -> bytes:
    """The nonce every GPU is asked with, from the client's nonce and the keyset digest."""
    return hashlib.sha256(_GPU_CONTEXT + nonce + digest).digest()


def gpu_digest(entries: Sequence[GpuEntry]) -> bytes:
    """SHA-256 of the canonical gpu array, in the order of the device index."""
    return hashlib.sha256(jcs([entry.to_json_value() for entry in entries])).digest()


def statement_bytes(*, nonce: Nonce, keyset_sha256: bytes, gpu_sha256: bytes) -> bytes:
    """The statement, exactly these bytes."""
    return jcs(
        {
            "gpu_sha256": gpu_sha256.hex(),
            "keyset": f"sha256:{keyset_sha256.hex()}",
            "nonce": nonce.hex(),
            "purpose": PURPOSE,
        }
    )


def report_data(statement: bytes) -> bytes:
    """The 64 bytes a quote must carry for ``statement``."""
    return hashlib.sha256(statement).digest() + bytes(32)


def require_bound(bundle: EvidenceBundle, nonce: Nonce, quoted_report_data: bytes) -> None:
    """The quote vouches for this nonce, this keyset and this GPU evidence.

    The statement is recomputed from what the verifier knows; the one sent along only names the
    reason when they differ.

    Raises: MalformedEvidence("format"): the statement is not a canonical one.
    StaleEvidence: nonce_mismatch, channel_binding (another keyset), gpu_evidence_hash,
    report_data (the quote carries another statement).
    """
    keyset_sha256 = keyset_digest(bundle.keyset)
    gpu_sha256 = gpu_digest(bundle.gpu)
    expected = statement_bytes(nonce=nonce, keyset_sha256=keyset_sha256, gpu_sha256=gpu_sha256)
    sent = bundle.statement.encode("utf-8")
    if not hmac.compare_digest(sent, expected):
        _explain_difference(sent, nonce, keyset_sha256, gpu_sha256)
    if not hmac.compare_digest(report_data(expected), quoted_report_data):
        raise StaleEvidence("report_data", "REPORTDATA is not the digest of this statement")


def _explain_difference(sent: bytes, nonce: Nonce, keyset_sha256: bytes, gpu_sha256: bytes) -> None:
    members = parse_object(sent, what="statement", max_bytes=_MAX_STATEMENT_BYTES, max_depth=1)
    if members.get("nonce") != nonce.hex():
        raise StaleEvidence("nonce_mismatch", "the statement answers another nonce")
    if members.get("keyset") != f"sha256:{keyset_sha256.hex()}":
        raise StaleEvidence("channel_binding", "the statement commits to another keyset")
    if members.get("gpu_sha256") != gpu_sha256.hex():
        raise StaleEvidence("gpu_evidence_hash", "the statement commits to other GPU evidence")
    raise MalformedEvidence("format", "statement: not in its canonical form")


def canonical(value: object, *, number: Callable[[float], str]) -> str:
    """``value`` as RFC 8785 orders and quotes it, with numbers as ``number`` writes them.

    Raises: MalformedEvidence("format"): no JSON value.
    """
    if isinstance(value, str):
        return _quoted(value)
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int | float):
        return number(value)
    if isinstance(value, Mapping):
        names = sorted(value, key=_utf16)
        members = (f"{_quoted(name)}:{canonical(value[name], number=number)}" for name in names)
        return "{" + ",".join(members) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(canonical(item, number=number) for item in value) + "]"
    raise MalformedEvidence("format", f"JCS: {type(value).__name__} has no canonical form here")


def _integer(value: float) -> str:
    if not isinstance(value, int):
        raise MalformedEvidence("format", "JCS: float has no canonical form here")
    if abs(value) > MAX_SAFE_INTEGER:
        raise MalformedEvidence("format", "JCS: integer beyond 2**53 - 1")
    return str(value)


def _utf16(name: str) -> bytes:
    """RFC 8785 sec. 3.2.3: order by UTF-16 code units."""
    return name.encode("utf-16-be", "surrogatepass")

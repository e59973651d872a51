"""What does a tinfoil attestation document hold?  Version 3, with CPU, GPUs and the keys it names.

The GPU digest is over the bytes of the "gpu" value exactly as they arrived, so the document is
never serialised again.
"""

import base64
import binascii
import hashlib

from attestation.certificate import read_pem, subject_public_key_info
from attestation.composite import Session
from attestation.errors import MalformedEvidence, UnsupportedEvidence
from attestation.model import (
    GPU_ARCHS,
    MAX_BUNDLE_BYTES,
    MAX_BUNDLE_DEPTH,
    MAX_GPUS,
    GpuEntry,
)
from attestation.profiles import SessionFacts
from attestation.raw_json import member_bytes
from attestation.strict_json import JsonValue, array, hex_bytes, parse_object, require_keys, text

FORMAT_V3 = "https://tinfoil.sh/predicate/attestation/v3"
_WHAT = "tinfoil document"
_REQUIRED = frozenset({"format", "report_data", "cpu"})
_OPTIONAL = frozenset({"gpu", "nvswitch", "certificate", "signature"})
_ENTRY = frozenset({"arch", "certificate", "evidence"})
_PLATFORMS = {"tdx": "tdx", "sev-snp": "snp"}


def parse_tinfoil(data: bytes, *, nras: bytes | None = None) -> Session:
    """A session from a version 3 document; ``nras`` is a token that came beside it.

    Raises: MalformedEvidence("format"); UnsupportedEvidence: unsupported_version (another format),
    unsupported_tee.
    """
    document = parse_object(
        data, what=_WHAT, max_bytes=MAX_BUNDLE_BYTES, max_depth=MAX_BUNDLE_DEPTH
    )
    if document.get("format") != FORMAT_V3:
        raise UnsupportedEvidence("unsupported_version", f"{_WHAT}: not of format version 3")
    document = require_keys(document, _WHAT, required=_REQUIRED, optional=_OPTIONAL)
    cpu = require_keys(document["cpu"], "cpu", required=frozenset({"platform", "report"}))
    platform = _PLATFORMS.get(text(cpu["platform"], "cpu.platform"))
    if platform is None:
        raise UnsupportedEvidence(
            "unsupported_tee", f"{_WHAT}: platform is none of {', '.join(_PLATFORMS)}"
        )
    certificate = document.get("certificate")
    return Session(
        profile="tinfoil-v3",
        label=platform,
        cpu=_base64(cpu["report"], "cpu.report"),
        gpu=(
            *_entries(document.get("gpu"), "gpu"),
            *_entries(document.get("nvswitch"), "nvswitch"),
        ),
        stated=_stated(document["report_data"]),
        certificate_key_sha256=None
        if certificate is None
        else _key_sha256(text(certificate, "certificate")),
        gpu_sha256=_digest(data, "gpu"),
        switch_sha256=_digest(data, "nvswitch"),
        nras=nras,
    )


def _stated(value: JsonValue) -> SessionFacts:
    what = "report_data"
    fields = require_keys(
        value,
        what,
        required=frozenset({"tls_key_fp", "hpke_key", "nonce"}),
        optional=frozenset({"gpu_evidence_hash", "nvswitch_evidence_hash"}),
    )

    def digest(name: str) -> bytes | None:
        return hex_bytes(fields[name], f"{what}.{name}", num_bytes=32) if name in fields else None

    return SessionFacts(
        nonce=digest("nonce"),
        tls_key_sha256=digest("tls_key_fp"),
        hpke_key=digest("hpke_key"),
        gpu_sha256=digest("gpu_evidence_hash"),
        switch_sha256=digest("nvswitch_evidence_hash"),
    )


def _entries(value: JsonValue, what: str) -> tuple[GpuEntry, ...]:
    if value is None:
        return ()
    members = require_keys(value, what, required=frozenset({"evidences"}))
    return tuple(
        _entry(item, what) for item in array(members["evidences"], what, max_items=MAX_GPUS)
    )


def _entry(value: JsonValue, what: str) -> GpuEntry:
    entry = require_keys(value, what, required=_ENTRY, optional=frozenset({"nonce"}))
    arch = text(entry["arch"], f"{what}.arch")
    if arch not in GPU_ARCHS:
        raise MalformedEvidence("format", f"{what}.arch: not a known architecture")
    return GpuEntry(
        arch=arch,
        cert_chain=_base64(entry["certificate"], f"{what}.certificate"),
        report=_base64(entry["evidence"], f"{what}.evidence"),
    )


def _digest(data: bytes, name: str) -> bytes | None:
    received = member_bytes(data, name, what=_WHAT)
    return None if received is None or received == b"null" else hashlib.sha256(received).digest()


def _key_sha256(pem: str) -> bytes:
    """SHA-256 of the SubjectPublicKeyInfo; the certificate is a web server's, of any key."""
    what = "certificate"
    certificates = read_pem(pem.encode("utf-8"), what=what)
    if not certificates:
        raise MalformedEvidence("format", f"{what}: none")
    return hashlib.sha256(subject_public_key_info(certificates[0], what=what)).digest()


def _base64(value: JsonValue, what: str) -> bytes:
    try:
        return base64.b64decode(text(value, what), validate=True)
    except (binascii.Error, ValueError) as err:
        raise MalformedEvidence("format", f"{what}: not base64") from err

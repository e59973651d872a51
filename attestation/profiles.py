"""Which bytes must REPORT_DATA hold?  One named convention per peer, never mixed.

Our own convention is ``binding``'s.  These are those of others, so that their sessions can be
appraised: each profile says which 64 bytes it expects for the facts of one session, which nonce a
GPU must have been asked with, and what it leaves open.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from attestation.errors import MalformedEvidence, UnsupportedEvidence

REPORT_DATA_BYTES = 64
DIGEST_BYTES = 32
ADDRESS_BYTES = 20
_DSTACK_TAG = re.compile(r"[a-z][a-z0-9-]{0,63}")
_NO_NONCE = "freshness: this binding has no nonce, so the session may be a recording"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionFacts:
    """What the RelyingParty itself knows of a session; never what the Evidence says of itself.

    nonce: the 32 bytes it asked with. tls_key_sha256: SHA-256 of the SubjectPublicKeyInfo that its
    connection used. hpke_key: the raw key it is about to seal to. signing_address: the 20 bytes it
    will check signatures against. gpu_sha256, switch_sha256: over the evidence bytes as received.
    content: what the application put under ``tag``, or the text of its end-to-end key.
    """

    nonce: bytes | None = None
    tls_key_sha256: bytes | None = None
    hpke_key: bytes | None = None
    signing_address: bytes | None = None
    gpu_sha256: bytes | None = None
    switch_sha256: bytes | None = None
    tag: str | None = None
    content: bytes | None = None


def _fact(value: bytes | None, name: str, num_bytes: int = DIGEST_BYTES) -> bytes:
    if value is None or len(value) != num_bytes:
        got = "none" if value is None else f"{len(value)} bytes"
        raise MalformedEvidence("format", f"binding: {name} is {got}, want {num_bytes} bytes")
    return value


def _nonce(facts: SessionFacts) -> bytes:
    return _fact(facts.nonce, "nonce")


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingProfile:
    """One convention.  Both functions raise MalformedEvidence("format") when a fact is missing.

    GPUs are asked with the session's own nonce unless ``gpu_nonce`` makes another of it.
    ``num_bound_bytes`` of REPORT_DATA are compared, from its start; the rest is the peer's own.
    """

    name: str
    report_data: Callable[[SessionFacts], bytes]
    gpu_nonce: Callable[[SessionFacts], bytes] = _nonce
    num_bound_bytes: int = REPORT_DATA_BYTES
    not_covered: tuple[str, ...] = ()


def binding_profile(name: str) -> BindingProfile:
    """Raises: UnsupportedEvidence("unsupported_tee"): no profile has this name."""
    profile = PROFILES.get(name)
    if profile is None:
        raise UnsupportedEvidence(
            "unsupported_tee", f"binding profile is none of {', '.join(sorted(PROFILES))}"
        )
    return profile


def _tinfoil_v2(facts: SessionFacts) -> bytes:
    """TLS key digest || HPKE key."""
    return _fact(facts.tls_key_sha256, "TLS key") + _fact(facts.hpke_key, "HPKE key")


def _tinfoil_v3(facts: SessionFacts) -> bytes:
    """SHA-256(TLS key digest || HPKE key || nonce [|| GPU digest [|| switch digest]])."""
    parts = [_tinfoil_v2(facts), _nonce(facts)]
    if facts.gpu_sha256 is not None:
        parts.append(_fact(facts.gpu_sha256, "GPU evidence"))
    if facts.switch_sha256 is not None:
        _fact(facts.gpu_sha256, "GPU evidence")  # switches never come alone
        parts.append(_fact(facts.switch_sha256, "switch evidence"))
    return hashlib.sha256(b"".join(parts)).digest() + bytes(32)


def _dstack(facts: SessionFacts) -> bytes:
    """SHA-512(tag || ":" || content)."""
    if facts.content is None or facts.tag is None or not _DSTACK_TAG.fullmatch(facts.tag):
        raise MalformedEvidence("format", "binding: want a tag (app-data, ratls-cert) and content")
    return hashlib.sha512(facts.tag.encode("ascii") + b":" + facts.content).digest()


def _near(facts: SessionFacts) -> bytes:
    """SHA-256(signing address || TLS key digest) || nonce."""
    address = _fact(facts.signing_address, "signing address", ADDRESS_BYTES)
    named = hashlib.sha256(address + _fact(facts.tls_key_sha256, "TLS key")).digest()
    return named + _nonce(facts)


def _venice(facts: SessionFacts) -> bytes:
    """Signing address || 12 zeros || nonce."""
    address = _fact(facts.signing_address, "signing address", ADDRESS_BYTES)
    return address + bytes(DIGEST_BYTES - ADDRESS_BYTES) + _nonce(facts)


def _chutes_digest(facts: SessionFacts) -> bytes:
    """SHA-256(nonce in hex || end-to-end key as text): both parts are text."""
    if not facts.content:
        raise MalformedEvidence("format", "binding: the end-to-end key is missing")
    return hashlib.sha256(_nonce(facts).hex().encode("ascii") + facts.content).digest()


_ALL = (
    BindingProfile(name="tinfoil-v2", report_data=_tinfoil_v2, not_covered=(_NO_NONCE,)),
    BindingProfile(name="tinfoil-v3", report_data=_tinfoil_v3),
    BindingProfile(name="dstack", report_data=_dstack, not_covered=(_NO_NONCE,)),
    BindingProfile(name="near", report_data=_near),
    BindingProfile(name="venice", report_data=_venice),
    BindingProfile(
        name="chutes",
        report_data=lambda facts: _chutes_digest(facts) + bytes(32),
        gpu_nonce=_chutes_digest,
        num_bound_bytes=DIGEST_BYTES,
        not_covered=("report_data: its second half is the peer's own and is not compared",),
    ),
)
PROFILES: Mapping[str, BindingProfile] = MappingProxyType({p.name: p for p in _ALL})

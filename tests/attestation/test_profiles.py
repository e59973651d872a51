"""Each convention of a peer, recomputed here by its own words."""

import hashlib
from dataclasses import replace

import pytest

from attestation.errors import AttestationError
from attestation.profiles import PROFILES, SessionFacts, binding_profile

_NONCE, _TLS, _HPKE, _ADDRESS = b"n" * 32, b"t" * 32, b"h" * 32, b"a" * 20
_FACTS = SessionFacts(
    nonce=_NONCE,
    tls_key_sha256=_TLS,
    hpke_key=_HPKE,
    signing_address=_ADDRESS,
    tag="app-data",
    content=b"content",
)


def _sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tinfoil-v2", _TLS + _HPKE),
        ("tinfoil-v3", _sha256(_TLS + _HPKE + _NONCE) + bytes(32)),
        ("dstack", hashlib.sha512(b"app-data:content").digest()),
        ("near", _sha256(_ADDRESS + _TLS) + _NONCE),
        ("venice", _ADDRESS + bytes(12) + _NONCE),
        ("chutes", _sha256(_NONCE.hex().encode() + b"content") + bytes(32)),
    ],
)
def test_report_data(name: str, expected: bytes) -> None:
    assert binding_profile(name).report_data(_FACTS) == expected


def test_tinfoil_v3_adds_evidence_digests_in_order() -> None:
    with_gpu = replace(_FACTS, gpu_sha256=b"g" * 32)
    with_both = replace(with_gpu, switch_sha256=b"s" * 32)
    data = PROFILES["tinfoil-v3"].report_data
    base = _TLS + _HPKE + _NONCE

    assert data(with_gpu)[:32] == _sha256(base + b"g" * 32)
    assert data(with_both)[:32] == _sha256(base + b"g" * 32 + b"s" * 32)


def test_only_chutes_derives_the_nonce_of_its_gpus() -> None:
    for name, profile in PROFILES.items():
        derived = _sha256(_NONCE.hex().encode() + b"content")
        assert profile.gpu_nonce(_FACTS) == (derived if name == "chutes" else _NONCE)


@pytest.mark.parametrize("name", PROFILES)
def test_facts_of_another_length_are_refused(name: str) -> None:
    short = SessionFacts(
        nonce=b"n", tls_key_sha256=b"t", hpke_key=b"h", signing_address=b"a", tag="", content=b""
    )

    with pytest.raises(AttestationError) as caught:
        PROFILES[name].report_data(short)

    assert caught.value.code == "format"


def test_switches_never_come_alone() -> None:
    with pytest.raises(AttestationError):
        PROFILES["tinfoil-v3"].report_data(replace(_FACTS, switch_sha256=b"s" * 32))

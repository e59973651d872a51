"""Bundles are read strictly, and results say everything in JSON."""

import json
from dataclasses import replace
from typing import Any

import pytest

from attestation.errors import AttestationError
from attestation.model import MAX_GPUS, GpuEntry, parse_bundle, parse_nonce
from tests.attestation import samples


def _code(data: bytes) -> str:
    with pytest.raises(AttestationError) as caught:
        parse_bundle(data)
    return caught.value.code


def _edited(**members: Any) -> bytes:
    return json.dumps({**json.loads(samples.evidence().to_json()), **members}).encode()


def test_a_bundle_survives_its_wire_form() -> None:
    gpu = GpuEntry(arch="BLACKWELL", cert_chain=b"chain", report=b"\0report")
    bundle = replace(samples.evidence(), gpu=(gpu,), event_log="log")

    assert parse_bundle(bundle.to_json()) == bundle
    assert parse_bundle(replace(bundle, collateral=None).to_json()).collateral is None


def test_collateral_may_be_left_out() -> None:
    members = json.loads(samples.evidence().to_json())
    del members["collateral"]

    assert parse_bundle(json.dumps(members).encode()).collateral is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{",
        b'{"tee": "tdx"}',
        b"\xff{}",
        b"[" * 100_000,
        _edited(extra=1),
        _edited(tee=1),
        _edited(quote_b64="AAA"),
        _edited(quote_b64="AAB="),  # spare bits that are not zero
        _edited(quote_b64="AA A="),
        _edited(event_log=1),
        _edited(keyset=[]),
        _edited(keyset={"a": 1.5}),
        _edited(keyset={"a": 2**53}),
        _edited(keyset={"a": "\ud800"}),
        _edited(gpu={}),
        _edited(gpu=[{"arch": "HOPPER", "cert_chain": "", "report": ""}] * (MAX_GPUS + 1)),
        _edited(gpu=[{"arch": "VOLTA", "cert_chain": "", "report": ""}]),
        _edited(collateral={}),
        _edited(statement="x" * (4 * 1024 * 1024)),
    ],
)
def test_malformed_bundles_are_refused(data: bytes) -> None:
    assert _code(data) == "format"


def test_depth_is_bounded() -> None:
    nested: Any = 1
    for _ in range(20):
        nested = [nested]

    assert _code(_edited(keyset={"a": nested})) == "format"


def test_duplicate_members_are_refused() -> None:
    data = samples.evidence().to_json()

    assert _code(data.replace(b'{"tee":', b'{"tee":"tdx","tee":', 1)) == "format"


@pytest.mark.parametrize("text", ["", "ab", "AB" * 32, "ab" * 33, "zz" * 32, "ab" * 32 + "\n"])
def test_a_nonce_is_64_lower_case_hex_digits(text: str) -> None:
    with pytest.raises(AttestationError) as caught:
        parse_nonce(text)

    assert caught.value.code == "nonce_length"


def test_results_are_json() -> None:
    result = samples.judge(samples.evidence())

    document = json.loads(json.dumps(result.to_dict()))

    assert document["tier"] == "warning"
    assert document["accepted"] is True
    assert document["appraised_at"] == "2026-12-01T12:00:00Z"
    assert document["not_after"] == "2026-12-01T12:05:00Z"
    assert document["claims"]["weights_sha256"] == ["55" * 32]

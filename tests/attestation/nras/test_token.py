"""What NRAS must say of a device, claim by claim, and what comes out when it does."""

from datetime import timedelta
from typing import Any

import pytest

from attestation.checks import CheckLog
from attestation.errors import AttestationError, MalformedEvidence
from attestation.nras.eat import parse_eat
from attestation.nras.jwks import parse_jwks
from attestation.nras.token import NrasClaims, verify_nras
from tests.attestation.nras.samples import (
    AT,
    NONCE,
    Answer,
    Token,
    device_claims,
    good_answer,
    jwk,
    to_json,
)

_INFORMATIVE = {"jti", "x-nvidia-attestation-warning"}
_EVERYTHING = [
    (version, name, claim)
    for version in ("2.0", "3.0")
    for name in ("GPU-0", "SWITCH-0")
    for claim in device_claims(name, version)
    if claim not in _INFORMATIVE
]


def _verify(answer: Answer, nonce: bytes = NONCE) -> NrasClaims:
    jwks = parse_jwks(to_json(answer.jwks))
    return verify_nras(to_json(answer.bundle()), jwks, nonce=nonce, at=AT, log=CheckLog())


@pytest.mark.parametrize(("version", "name", "claim"), _EVERYTHING)
def test_no_device_claim_may_be_missing(version: str, name: str, claim: str) -> None:
    answer = good_answer(version, (name,))
    del answer.devices[name].claims[claim]

    with pytest.raises(AttestationError) as caught:
        _verify(answer)

    assert caught.value.code == "claims"


@pytest.mark.parametrize(
    ("version", "name", "claim"),
    [each for each in _EVERYTHING if device_claims(each[1], each[0])[each[2]] is True],
)
@pytest.mark.parametrize("value", [False, None, 1, "true"])
def test_no_device_claim_may_be_less_than_true(
    version: str, name: str, claim: str, value: Any
) -> None:
    answer = good_answer(version, (name,))
    answer.devices[name].claims[claim] = value

    with pytest.raises(AttestationError) as caught:
        _verify(answer)

    assert caught.value.code == "claims"


def test_claims_of_version_2_do_not_pass_as_version_3() -> None:
    answer = good_answer("2.0")
    answer.overall.claims["x-nvidia-ver"] = "3.0"

    with pytest.raises(AttestationError) as caught:
        _verify(answer)

    assert caught.value.code == "claims"


def test_good_devices_are_told_one_by_one() -> None:
    names = (*(f"GPU-{index}" for index in range(8)), "SWITCH-0")

    claims = _verify(good_answer("3.0", names))

    assert [device.name for device in claims.devices] == list(names)
    assert {device.kind for device in claims.devices[:8]} == {"gpu"}
    assert claims.devices[0].driver_version == "550.90.07"
    assert claims.devices[8].kind == "switch"
    assert claims.devices[8].driver_version is None
    assert (claims.version, claims.nonce, claims.verified_at) == ("3.0", NONCE, AT)


def test_one_bad_device_of_eight_is_enough() -> None:
    answer = good_answer("3.0", tuple(f"GPU-{index}" for index in range(8)))
    answer.devices["GPU-7"].claims["measres"] = "fail"

    with pytest.raises(AttestationError) as caught:
        _verify(answer)

    assert caught.value.code == "claims"


def test_a_device_token_of_another_session_does_not_fit() -> None:
    """Genuine, signed, listed by digest: but it answers another nonce."""
    answer = good_answer()
    answer.devices["GPU-1"] = Token(device_claims("GPU-1") | {"eat_nonce": "11" * 32})

    with pytest.raises(AttestationError) as caught:
        _verify(answer)

    assert caught.value.code == "nonce_mismatch"


def test_the_first_end_counts() -> None:
    by_token = _verify(good_answer())
    answer = good_answer()
    answer.jwks["keys"] = [jwk(not_after=AT + timedelta(minutes=5))]
    by_key = _verify(answer)
    answer = good_answer()
    chain = answer.devices["GPU-0"].claims["x-nvidia-gpu-vbios-rim-cert-chain"]
    chain["x-nvidia-cert-expiration-date"] = "2026-12-01T12:01:00Z"
    by_chain = _verify(answer)

    assert by_token.not_after == AT + timedelta(minutes=59)
    assert by_key.not_after == AT + timedelta(minutes=5)
    assert by_chain.not_after == AT + timedelta(minutes=1)


@pytest.mark.parametrize("nonce", [b"", bytes(31), bytes(33)])
def test_the_expected_nonce_has_32_bytes(nonce: bytes) -> None:
    with pytest.raises(MalformedEvidence) as caught:
        _verify(good_answer(), nonce)

    assert caught.value.code == "nonce_length"


def test_an_upper_case_nonce_is_another_nonce() -> None:
    answer = good_answer()
    answer.overall.claims["eat_nonce"] = NONCE.hex().upper()

    with pytest.raises(AttestationError) as caught:
        _verify(answer)

    assert caught.value.code == "nonce_mismatch"


def test_fields_show_what_is_there() -> None:
    answer = good_answer()
    shown = dict(parse_eat(to_json(answer.bundle())).fields())
    verified = dict(_verify(answer).fields())

    assert shown["overall.eat_nonce"] == NONCE.hex()
    assert shown["GPU-0.measres"] == "success"
    assert verified["GPU-0.driver_version"] == "550.90.07"
    assert verified["not_after"] == (AT + timedelta(minutes=59)).isoformat()

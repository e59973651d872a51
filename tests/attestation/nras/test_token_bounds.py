"""An NRAS answer at its edges: seconds, digests, what is shown, and what a policy may ask."""

import hashlib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from attestation.checks import CheckLog
from attestation.errors import AttestationError, PolicyViolation
from attestation.nras.jwks import parse_jwks
from attestation.nras.rules import MAX_AGE_S, ClaimsVersionAllowed, TokenRecent
from attestation.nras.token import NrasClaims, verify_nras
from tests.attestation.nras.samples import AT, NONCE, POLICY, Answer, good_answer, jwk, to_json
from tests.attestation.nras.test_rules import _read

_NOW = int(AT.timestamp())
_END_OF_9999 = 253402300799


def _verify(answer: Answer, at: datetime = AT) -> NrasClaims:
    jwks = parse_jwks(to_json(answer.jwks))
    return verify_nras(to_json(answer.bundle()), jwks, nonce=NONCE, at=at, log=CheckLog())


def _code(answer: Answer, at: datetime = AT) -> str | None:
    try:
        _verify(answer, at)
    except AttestationError as err:
        return err.code
    return None


def _dated(name: str, **claims: int) -> Answer:
    answer = good_answer()
    token = answer.overall if name == "overall" else answer.devices[name]
    token.claims.update(claims)
    return answer


@pytest.mark.parametrize("name", ["overall", "GPU-0"])
@pytest.mark.parametrize(
    ("claims", "code"),
    [
        ({"iat": _NOW}, None),
        ({"iat": _NOW + 1}, "token_not_yet_valid"),
        ({"nbf": _NOW}, None),
        ({"nbf": _NOW + 1}, "token_not_yet_valid"),
        ({"exp": _NOW + 1}, None),
        ({"exp": _NOW}, "token_expired"),
        ({"exp": _END_OF_9999}, None),
        ({"exp": _END_OF_9999 + 1}, "format"),
    ],
)
def test_a_token_lives_from_its_first_second_to_just_before_its_last(
    name: str, claims: dict[str, int], code: str | None
) -> None:
    assert _code(_dated(name, **claims)) == code


def test_a_signing_certificate_lives_to_its_last_second() -> None:
    answer = good_answer()
    first, last = AT - timedelta(days=1), AT + timedelta(minutes=5)
    answer.jwks = {"keys": [jwk(not_after=last)]}
    for token in (answer.overall, *answer.devices.values()):
        token.claims.update(iat=0, nbf=0, exp=_END_OF_9999)
    second = timedelta(seconds=1)

    assert [_code(answer, at) for at in (first, last)] == [None, None]
    assert [_code(answer, at) for at in (first - second, last + second)] == [
        "certificate_time",
        "certificate_time",
    ]


@pytest.mark.parametrize("older", ["overall", "GPU-0"])
def test_an_answer_is_as_old_as_its_oldest_token(older: str) -> None:
    claims = _verify(_dated(older, iat=_NOW - 500))

    assert claims.issued_at == AT - timedelta(seconds=500)


def _listed(value: Any) -> Answer:
    answer = good_answer()
    answer.are_digests_fixed = True
    answer.overall.claims["submods"] = {"GPU-0": value}
    return answer


def test_a_submodule_is_one_digest_of_one_form() -> None:
    token = good_answer().devices["GPU-0"].compact()
    right = hashlib.sha256(token.encode()).hexdigest()
    pair = ["SHA-256", right]

    assert _code(_listed(["DIGEST", pair])) is None
    for value, code in (
        (["DIGEST"], "format"),
        (["DIGEST", pair, pair], "format"),
        (["JWT", pair], "format"),
        ([], "format"),
        ("DIGEST", "format"),
        (["DIGEST", [*pair, right]], "format"),
        (["DIGEST", ["SHA-256"]], "algorithm"),
        (["DIGEST", ["SHA-384", right]], "algorithm"),
        (["DIGEST", ["SHA-256", right.upper()]], "format"),
        (["DIGEST", ["SHA-256", "00" * 32]], "submod_digest"),
    ):
        assert _code(_listed(value)) == code, value


def test_what_is_verified_is_shown_by_name() -> None:
    answer = good_answer(names=("GPU-0", "SWITCH-0"))
    answer.devices["GPU-0"].claims["x-nvidia-attestation-warning"] = "careful"
    claims = _verify(answer)
    shown = dict(claims.fields())

    assert list(shown)[:5] == ["issuer", "claims_version", "eat_nonce", "issued_at", "not_after"]
    assert shown["issuer"] == "https://nras.attestation.nvidia.com"
    assert (shown["claims_version"], shown["eat_nonce"]) == ("3.0", NONCE.hex())
    assert shown["issued_at"] == claims.issued_at.isoformat()
    assert shown["not_after"] == claims.not_after.isoformat()
    assert (shown["GPU-0.warning"], shown["SWITCH-0.warning"]) == ("careful", "")
    assert (shown["GPU-0.driver_version"], shown["SWITCH-0.driver_version"]) == ("550.90.07", "")


def test_an_error_of_the_overall_token_is_told_as_its_own() -> None:
    answer = good_answer()
    answer.overall.claims["x-nvidia-error-details"] = {"code": 7}

    with pytest.raises(PolicyViolation, match=r"^overall token: NRAS answered with error 7"):
        _verify(answer)


def test_an_answer_is_recent_to_the_second() -> None:
    claims = replace(_verify(good_answer()), issued_at=AT - timedelta(seconds=30))

    TokenRecent(max_age_s=30).require(claims)
    with pytest.raises(AttestationError) as caught:
        TokenRecent(max_age_s=29).require(claims)
    assert caught.value.code == "evidence_age"
    end = TokenRecent(max_age_s=30).end(claims)
    assert timedelta(0) <= end - AT <= timedelta(seconds=1)


def test_numbers_of_a_policy_at_their_edges() -> None:
    assert MAX_AGE_S == 86400
    assert _read({**POLICY, "max_age_s": 86400})[1] == []
    assert _read({**POLICY, "devices": {"mode": "required", "gpus": 0}})[1] == []
    with pytest.raises(PolicyViolation, match=r"want 2\.0, 4\.0"):
        ClaimsVersionAllowed(allowed=frozenset({"4.0", "2.0"})).require(_verify(good_answer()))
    assert datetime.fromtimestamp(_END_OF_9999, UTC).year == 9999

"""Whatever arrives, parsers refuse it with our errors, in bounded memory; one bit is enough."""

import base64
from collections.abc import Callable

import pytest

from attestation.checks import CheckLog
from attestation.errors import AttestationError, MalformedEvidence
from attestation.nras.eat import MAX_DEVICES, MAX_EAT_BYTES, parse_eat
from attestation.nras.jwks import MAX_KEYS, parse_jwks
from attestation.nras.jws import MAX_TOKEN_BYTES, decode_base64url, parse_jws
from attestation.nras.token import verify_nras
from tests.attestation.nras.samples import AT, KID, NONCE, good_answer, jwk, to_json
from tests.support.mutations import count_refused, flipped_bits

_ANSWER = good_answer()
_EAT, _JWKS = to_json(_ANSWER.bundle()), to_json(_ANSWER.jwks)
_TOKEN = _ANSWER.overall.compact().encode()
_NUM_MUTATIONS = 2000
_MAX_PEAK_BYTES = 2 * 1024 * 1024


def _verify(eat: bytes) -> object:
    return verify_nras(eat, parse_jwks(_JWKS), nonce=NONCE, at=AT, log=CheckLog())


@pytest.mark.parametrize(
    ("data", "parse"),
    [
        (_EAT, parse_eat),
        (_EAT, _verify),
        (_EAT, lambda data: parse_eat(data).fields()),
        (_JWKS, lambda data: parse_jwks(data).find(KID)),
        (_TOKEN, lambda data: parse_jws(data.decode("latin-1"), what="token")),
    ],
    ids=["eat", "verify", "fields", "jwks", "jws"],
)
def test_damage_raises_only_our_errors(data: bytes, parse: Callable[[bytes], object]) -> None:
    num_refused = count_refused(
        parse, data, count=_NUM_MUTATIONS, seed=8, max_peak_bytes=_MAX_PEAK_BYTES
    )
    assert num_refused > _NUM_MUTATIONS // 4


def test_any_flipped_bit_rejects() -> None:
    for bit, damaged in flipped_bits(_EAT, 600, seed=9):
        with pytest.raises(AttestationError):
            pytest.fail(f"bit {bit}: {_verify(damaged)}")


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 100_000,
        b" " * (MAX_EAT_BYTES + 1),
        to_json([["JWT", "a.b.c"], {f"GPU-{index}": "" for index in range(MAX_DEVICES + 1)}]),
        to_json([["JWT", "A" * (MAX_TOKEN_BYTES + 1)], {}]),
        to_json([["JWT"], {}]),
        to_json([["JWS", "a.b.c"], {}]),
        to_json([["JWT", "a.b.c"], []]),
        to_json([["JWT", "a.b.c"], {}, {}]),
        to_json({"JWT": "a.b.c"}),
        b'[["JWT","a.b.c"],{"GPU-0":"","GPU-0":""}]',
    ],
    ids=range(10),
)
def test_bundles_of_another_shape_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedEvidence) as caught:
        parse_eat(data)

    assert caught.value.code == "format"


def test_too_many_keys_are_refused() -> None:
    keys = [{"kid": f"key-{index}"} for index in range(MAX_KEYS + 1)]

    with pytest.raises(MalformedEvidence):
        parse_jwks(to_json({"keys": keys}))


@pytest.mark.parametrize("x5c", [None, "x", [1], ["AA=="], ["!"], [""], ["A" * 20_000], ["AA"] * 5])
def test_certificates_of_another_shape_are_refused(x5c: object) -> None:
    jwks = parse_jwks(to_json({"keys": [{**jwk(), "x5c": x5c}]}))

    with pytest.raises(MalformedEvidence):
        jwks.find(KID)


@pytest.mark.parametrize("text", ["AA==", "A", "AB", "A+", "A/", "A A", "AA\n", "\u0410A"])
def test_base64url_has_one_form(text: str) -> None:
    with pytest.raises(MalformedEvidence):
        decode_base64url(text, "text")


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff" * 2, bytes(range(256))])
def test_base64url_reads_back(data: bytes) -> None:
    encoded = base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    assert decode_base64url(encoded, "text") == data

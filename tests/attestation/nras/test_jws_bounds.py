"""Tokens at the edges of what is read."""

import json

import pytest

from attestation.errors import AttestationError
from attestation.nras.jws import (
    MAX_DEPTH,
    MAX_HEADER_BYTES,
    MAX_TOKEN_BYTES,
    decode_base64url,
    parse_claims,
    parse_jws,
    parse_kid,
)
from tests.attestation.nras.samples import encode

_HEADER = {"alg": "ES384", "kid": "k"}


def _token(header: bytes = json.dumps(_HEADER).encode(), payload: bytes = b"{}") -> str:
    return f"{encode(header)}.{encode(payload)}."


def _code(token: str) -> str | None:
    try:
        parse_claims(parse_jws(token, what="token"))
    except AttestationError as err:
        return err.code
    return None


def test_a_token_has_at_most_16_kib() -> None:
    short = _token(payload=b"{}")
    payload = b"{" + b" " * ((MAX_TOKEN_BYTES - len(short)) * 3 // 4) + b"}"
    most = _token(payload=payload)
    while len(most) < MAX_TOKEN_BYTES:
        payload = b" " + payload
        most = _token(payload=payload)

    assert MAX_TOKEN_BYTES == 16384
    assert len(most) == 16384
    assert _code(most) is None
    assert _code(_token(payload=b" " + payload)) == "format"


def test_a_token_is_ascii() -> None:
    assert _code(_token().replace("e", "\u00e9", 1)) == "format"


@pytest.mark.parametrize(("num_bytes", "code"), [(4096, None), (4097, "format")])
def test_a_header_has_at_most_4_kib(num_bytes: int, code: str | None) -> None:
    assert MAX_HEADER_BYTES == 4096
    assert _code(_token(json.dumps(_HEADER).encode().ljust(num_bytes))) == code


@pytest.mark.parametrize(("depth", "code"), [(5, None), (6, "format")])
def test_claims_are_five_deep(depth: int, code: str | None) -> None:
    deep = b'{"a":' * depth + b"1" + b"}" * depth

    assert MAX_DEPTH == 5
    assert _code(_token(payload=deep)) == code
    nested = json.dumps({**_HEADER, "x": 0}).encode().replace(b"0", deep[5:-1])
    assert _code(_token(nested)) == code


@pytest.mark.parametrize(
    ("kid", "code"),
    [("k" * 128, None), ("k" * 129, "format"), ("", "format"), ("a b", "format"), (1, "format")],
)
def test_a_key_id_is_short_and_printable(kid: object, code: str | None) -> None:
    assert _code(_token(json.dumps({**_HEADER, "kid": kid}).encode())) == code


@pytest.mark.parametrize("text", ["A", "AAAAA", "AB", "A+", "A=", "A\n"])
def test_base64url_has_one_form(text: str) -> None:
    with pytest.raises(AttestationError) as caught:
        decode_base64url(text, "token")

    assert caught.value.code == "format"
    assert parse_kid("k", "token") == "k"

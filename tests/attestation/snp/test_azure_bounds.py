"""Azure blobs and TPM quotes at the edges of what is read."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from attestation.errors import AttestationError
from attestation.snp.azure import parse_hcl, require_runtime
from attestation.snp.tpm import parse_tpm_quote
from tests.attestation.snp.azure_samples import HCL, QUOTE, hcl, jwk, report_data, uint
from tests.support.fake_snp import FakeSnp


def _code(read: Callable[[], object]) -> str | None:
    try:
        read()
    except AttestationError as err:
        return err.code
    return None


def _runtime(text: bytes) -> str | None:
    report = FakeSnp().report(report_data=report_data(text))
    blob = hcl(text, report=report, tail=b"")
    return _code(lambda: require_runtime(parse_hcl(blob), report_data(text)))


def _with_keys(*keys: dict[str, Any], **members: Any) -> bytes:
    return json.dumps({"keys": [*keys, jwk()], **members}).encode()


def test_a_blob_has_at_most_16_kib() -> None:
    room = 16384 - len(HCL)

    assert _code(lambda: parse_hcl(HCL + bytes(room))) is None
    assert _code(lambda: parse_hcl(HCL + bytes(room + 1))) == "format"
    empty = hcl(b"", tail=b"")
    assert parse_hcl(empty).runtime_json == b""
    assert _code(lambda: parse_hcl(empty[:-1])) == "format"


@pytest.mark.parametrize(("version", "code"), [(0, False), (1, True), (2, True), (3, False)])
def test_two_versions_are_known(version: int, code: bool) -> None:
    want = None if code else "unsupported_version"

    assert _code(lambda: parse_hcl(hcl(version=version))) == want


@pytest.mark.parametrize(("num_bytes", "code"), [(8192, None), (8193, "format")])
def test_the_runtime_json_has_at_most_8_kib(num_bytes: int, code: str | None) -> None:
    assert _runtime(_with_keys().ljust(num_bytes)) == code


@pytest.mark.parametrize(("depth", "code"), [(8, None), (9, "format")])
def test_the_runtime_json_is_eight_deep(depth: int, code: str | None) -> None:
    deep: Any = 1
    for _ in range(depth - 1):
        deep = [deep]
    assert _runtime(_with_keys(more=deep)) == code


@pytest.mark.parametrize(("num_keys", "code"), [(8, None), (9, "format")])
def test_the_runtime_json_has_eight_keys(num_keys: int, code: str | None) -> None:
    others = [jwk(kid=f"other-{index}") for index in range(num_keys - 1)]

    assert _runtime(_with_keys(*others)) == code


@pytest.mark.parametrize(
    ("num_bits", "code"), [(2047, "bad_key"), (2048, None), (4096, None), (4097, "bad_key")]
)
def test_an_attestation_key_has_2048_to_4096_bits(num_bits: int, code: str | None) -> None:
    key = jwk(n=uint((1 << num_bits) - 1))

    assert _runtime(json.dumps({"keys": [key]}).encode()) == code


@pytest.mark.parametrize("edit", [lambda n: n + "=", lambda n: n + "\n", lambda n: f"A{n}!"])
def test_numbers_are_in_one_spelling(edit: Callable[[str], str]) -> None:
    key = jwk()
    assert _runtime(json.dumps({"keys": [{**key, "n": edit(key["n"])}]}).encode()) == "format"


def test_numbers_may_end_in_any_digit() -> None:
    number = uint((1 << 2063) | 0b010111)

    assert number.endswith("X")
    assert _runtime(json.dumps({"keys": [jwk(n=number)]}).encode()) is None


def test_a_quote_has_at_most_4_kib() -> None:
    assert _code(lambda: parse_tpm_quote(QUOTE + bytes(4096 - len(QUOTE)))) == "trailing_bytes"
    assert _code(lambda: parse_tpm_quote(QUOTE + bytes(4097 - len(QUOTE)))) == "format"

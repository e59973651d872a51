"""On Azure the report vouches for a JSON, the JSON for a TPM key, that key for our nonce."""

import hashlib
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from attestation.errors import AttestationError
from attestation.snp.azure import (
    AttestedRuntime,
    parse_hcl,
    require_ak,
    require_runtime,
    verify_tpm_quote,
)
from attestation.snp.report import parse_report
from attestation.snp.tpm import parse_tpm_quote, require_pcrs
from tests.attestation.snp.azure_samples import (
    HCL,
    NONCE,
    PCRS,
    QUOTE,
    QUOTE_SIGNATURE,
    hcl,
    jwk,
    quote,
    report_data,
    runtime_json,
    selection,
    sign_quote,
    uint,
)
from tests.support.fake_snp import FakeSnp, rsa_key
from tests.support.resources import vectors_dir

_REAL_N = 0xA91ECBA8  # how the modulus of the published blob's AK starts


def _runtime(blob: bytes = HCL) -> AttestedRuntime:
    parsed = parse_hcl(blob)
    return require_runtime(parsed, parse_report(parsed.report).report_data)


def _code(judge: Callable[[], object]) -> str:
    with pytest.raises(AttestationError) as caught:
        judge()
    return caught.value.code


def test_the_whole_way_from_report_to_nonce() -> None:
    runtime = _runtime()

    assert runtime.ak == rsa_key("ak").public_key().public_numbers()
    require_ak(runtime, rsa_key("ak").public_key().public_numbers())
    fresh = verify_tpm_quote(QUOTE, QUOTE_SIGNATURE, runtime=runtime, nonce=NONCE)
    require_pcrs(fresh.quote, PCRS)


def test_the_published_blob_names_its_key() -> None:
    data = (vectors_dir() / "attestation/snp/azure/hcl-report-milan.bin").read_bytes()
    runtime = _runtime(data)

    assert runtime.ak.e == 65537
    assert runtime.ak.n >> (runtime.ak.n.bit_length() - 32) == _REAL_N
    changed = data.replace(b'"secure-boot":true', b'"secure-boot":fals')
    assert _code(lambda: _runtime(changed)) == "report_data"


@pytest.mark.parametrize(("hash_type", "algorithm"), [(2, "sha384"), (3, "sha512")])
def test_longer_hashes(hash_type: int, algorithm: str) -> None:
    text = runtime_json()
    report = FakeSnp().report(report_data=report_data(text, algorithm))

    assert _runtime(hcl(text, report=report, hash_type=hash_type)).claims["keys"]
    assert _code(lambda: _runtime(hcl(text, report=report, hash_type=1))) == "report_data"


def test_each_rule_of_the_blob() -> None:
    text = runtime_json()
    short = HCL[: 1236 + len(text) - 1]

    assert parse_hcl(HCL[: 1236 + len(text)]).runtime_json == text
    for blob in (b"", HCL[:1235], short, b"HCLB" + HCL[4:], HCL.ljust(16385, b"\0")):
        assert _code(lambda blob=blob: parse_hcl(blob)) == "format"  # type: ignore[misc]
    for at in (8, 20, 1216, 1232):  # three lengths and a reserved byte
        changed = bytearray(HCL)
        changed[at] ^= 1
        assert _code(lambda blob=bytes(changed): parse_hcl(blob)) == "format"  # type: ignore[misc]
    assert _code(lambda: parse_hcl(hcl(tail=b"\0\1"))) == "trailing_bytes"
    assert _code(lambda: parse_hcl(hcl(version=3))) == "unsupported_version"
    assert _code(lambda: parse_hcl(hcl(report_type=4))) == "unsupported_tee"
    assert _code(lambda: parse_hcl(hcl(hash_type=0))) == "unsupported_algorithm"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"[]", "format"),
        (b'{"keys":7}', "format"),
        (b"{}", "format"),
        (runtime_json(jwk(kid="HCLEkPub")), "format"),
        (runtime_json(jwk(), jwk("other")), "format"),
        (runtime_json(jwk(kty="EC")), "bad_key"),
        (runtime_json(jwk(e="Aw")), "bad_key"),
        (runtime_json(jwk(n="AQAB")), "bad_key"),
        (runtime_json(jwk(n=uint(1 << 2047))), "bad_key"),
        (runtime_json(jwk(n=uint((1 << 2047) - 1))), "bad_key"),
        (runtime_json(jwk(n=uint((1 << 4096) + 1))), "bad_key"),
        (runtime_json(jwk(n=jwk()["n"] + "=")), "format"),
        (runtime_json(jwk(n="")), "format"),
        (runtime_json(jwk(n=7)), "format"),
        (runtime_json(jwk(n="+/+/")), "format"),
        (runtime_json(jwk(n="A")), "format"),
        (b'{"keys":[],"keys":[]}', "format"),
    ],
)
def test_each_rule_of_the_runtime_json(text: bytes, code: str) -> None:
    assert _code(lambda: _runtime(hcl(text))) == code


def test_a_key_from_elsewhere_must_have_both_numbers() -> None:
    ak = _runtime().ak

    assert _code(lambda: require_ak(_runtime(), rsa.RSAPublicNumbers(3, ak.n))) == "channel_binding"
    other = rsa_key("other").public_key().public_numbers()
    assert _code(lambda: require_ak(_runtime(), other)) == "channel_binding"


def _quote_code(attest: bytes, signature: bytes | None = None, nonce: bytes = NONCE) -> str:
    signed = sign_quote(attest) if signature is None else signature
    return _code(lambda: verify_tpm_quote(attest, signed, runtime=_runtime(), nonce=nonce))


def test_each_rule_of_the_quote() -> None:
    assert _quote_code(quote(magic=0xFF544348)) == "format"
    assert _quote_code(quote(kind=0x8017)) == "format"  # a certification, not a quote
    assert _quote_code(QUOTE[:-1]) == "format"
    assert _quote_code(QUOTE.ljust(4097, b"\0")) == "format"
    assert _quote_code(QUOTE + b"\0") == "trailing_bytes"
    assert _quote_code(quote(selections=(selection(0),) * 2)) == "format"
    assert _quote_code(quote(selections=(selection(0, bank=4),))) == "unsupported_algorithm"
    assert _quote_code(quote(selections=tuple(selection(bank=i) for i in range(9)))) == "format"
    assert _quote_code(QUOTE, sign_quote(QUOTE, "other")) == "quote_signature"
    assert _quote_code(QUOTE, sign_quote(quote(bytes(32)))) == "quote_signature"
    assert _quote_code(QUOTE, b"\0\x16" + QUOTE_SIGNATURE[2:]) == "unsupported_algorithm"
    assert _quote_code(QUOTE, QUOTE_SIGNATURE[:2] + b"\0\4" + QUOTE_SIGNATURE[4:]) == (
        "unsupported_algorithm"
    )
    assert _quote_code(QUOTE, QUOTE_SIGNATURE + b"\0") == "trailing_bytes"
    assert _quote_code(QUOTE, nonce=bytes(32)) == "nonce_mismatch"
    assert _quote_code(quote(b""), nonce=NONCE) == "nonce_mismatch"


def test_banks_that_select_nothing_are_no_banks() -> None:
    empty = [selection(bank=number) for number in (4, 0x000C, 0x000D, 0x0012, 1, 2, 3)]

    assert parse_tpm_quote(quote(selections=(*empty, selection(7)))).pcrs == (7,)
    long_bitmap = b"\0\x0b\x09" + bytes(9)
    assert _quote_code(quote(selections=(long_bitmap,))) == "format"
    assert parse_tpm_quote(quote(selections=(b"\0\x0b\x08" + bytes(7) + b"\x80",))).pcrs == (63,)


def test_pcrs_are_exactly_those_that_were_asked_for() -> None:
    parsed = parse_tpm_quote(QUOTE)

    assert parsed.pcrs == (0, 7, 11)
    assert parsed.pcr_digest == hashlib.sha256(b"\1" * 32 + b"\2" * 32 + b"\3" * 32).digest()
    for expected in (
        {0: PCRS[0], 7: PCRS[7]},
        PCRS | {12: bytes(32)},
        PCRS | {7: bytes(32)},
        {},
    ):
        assert _code(lambda pcrs=expected: require_pcrs(parsed, pcrs)) == (  # type: ignore[misc]
            "measurement_mismatch"
        )

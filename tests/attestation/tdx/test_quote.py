"""The quote parser is strict, and hostile bytes only ever meet our own errors."""

import random
import struct
from dataclasses import replace

import pytest

from attestation.anchors import load_anchors
from attestation.appraise import appraise_quote
from attestation.errors import AttestationError
from attestation.fake import FakeTee
from attestation.fake.platform import FakePlatform, fake_digest
from attestation.policy import load_policy
from attestation.tdx.quote import MAX_QUOTE_BYTES, TdExtension, TdReport, parse_quote
from tests.attestation.samples import AT
from tests.support.mutations import mutations

_REPORT_DATA = bytes(range(64))
_QUOTE = FakeTee().quote(_REPORT_DATA)
_V4_BODY_END = 632


def _code(data: bytes) -> str:
    with pytest.raises(AttestationError) as caught:
        parse_quote(data)
    return caught.value.code


def _v5(body_type: int, body: bytes, tee_type: int = 0x81, *, declared: int = 0) -> bytes:
    header = struct.pack("<HHI", 5, 2, tee_type) + _QUOTE[8:48]
    descriptor = struct.pack("<HI", body_type, declared or len(body))
    return header + descriptor + body + _QUOTE[_V4_BODY_END:]


def test_fields_are_where_the_format_says() -> None:
    quote = parse_quote(_QUOTE)

    assert isinstance(quote.body, TdReport)
    assert (quote.version, quote.tee) == (4, "tdx")
    assert quote.body.mr_td == fake_digest("MRTD")
    assert quote.body.rtmrs == tuple(fake_digest(f"RTMR{i}") for i in range(4))
    assert quote.body.report_data == _REPORT_DATA
    assert quote.body.tee_tcb_svn == FakePlatform().tee_tcb_svn
    assert quote.body.mr_service_td is None
    assert quote.signed_bytes == _QUOTE[:_V4_BODY_END]
    assert quote.qe_report.isv_prod_id == 2


def test_version_5_names_its_body() -> None:
    td10 = _QUOTE[48:_V4_BODY_END]
    td15 = td10 + bytes([7]) * 16 + bytes([9]) * 48

    old, new = parse_quote(_v5(2, td10)), parse_quote(_v5(3, td15))

    assert len(old.signed_bytes) == 638
    assert len(new.signed_bytes) == 702
    assert isinstance(new.body, TdReport)
    assert (new.body.tee_tcb_svn_2, new.body.mr_service_td) == (b"\7" * 16, b"\t" * 48)
    assert replace(new.body, tee_tcb_svn_2=None, mr_service_td=None) == old.body
    assert _code(_v5(3, td10)) == "format"
    assert _code(_v5(3, td15, declared=647)) == "format"
    assert _code(_v5(4, td15)) == "format"
    assert _code(_v5(5, td15)) == "unsupported_version"
    assert _code(_v5(2, td10, tee_type=0)) == "tee_type"


def test_td15_ex_fields_are_where_the_format_says() -> None:
    td15 = _QUOTE[48:_V4_BODY_END] + bytes([7]) * 16 + bytes([9]) * 48
    sizes = (1, 32, 48, 48, 8, 16, 16, 12, 48, 8)
    tail = b"".join(bytes([index + 20]) * size for index, size in enumerate(sizes))

    quote = parse_quote(_v5(4, td15 + tail))

    assert isinstance(quote.body, TdReport)
    assert len(quote.signed_bytes) == 48 + 6 + 885
    assert replace(quote.body, extension=None) == parse_quote(_v5(3, td15)).body
    assert quote.body.extension == TdExtension(
        vm_id=20,
        td_id=b"\x15" * 32,
        device_info_hash=b"\x16" * 48,
        init_service_td_hash=b"\x17" * 48,
        init_service_td_attributes=b"\x18" * 8,
        init_cpu_svn=b"\x19" * 16,
        init_tee_tcb_svn=b"\x1a" * 16,
        init_fmspc=b"\x1b" * 12,
        current_service_td_hash=b"\x1c" * 48,
        current_service_td_attributes=b"\x1d" * 8,
    )
    assert _code(_v5(4, td15 + tail[:-1])) == "format"
    assert _code(_v5(4, td15 + tail, tee_type=0)) == "tee_type"


def test_zero_padding_is_the_only_thing_after_the_end() -> None:
    assert parse_quote(_QUOTE + bytes(100)) == parse_quote(_QUOTE)
    assert _code(_QUOTE + bytes(99) + b"\1") == "trailing_bytes"
    assert _code(bytes(MAX_QUOTE_BYTES + 1)) == "format"


@pytest.mark.parametrize(
    ("offset", "field", "code"),
    [
        (632, b"\xff\xff\xff\xff", "format"),  # signature data length
        (632, struct.pack("<I", 100), "trailing_bytes"),
        (764, b"\5\0", "unsupported_cert_data"),  # certification data type
        (766, b"\xff\xff\xff\xff", "format"),
        (1218, b"\xff\xff", "format"),  # QE authentication data length
        (1252, b"\3\0", "unsupported_cert_data"),  # encrypted PPID instead of the chain
        (1254, b"\0\0\0\0", "format"),  # declared bytes that no field covers
    ],
)
def test_lengths_and_types_are_checked(offset: int, field: bytes, code: str) -> None:
    assert _code(_QUOTE[:offset] + field + _QUOTE[offset + len(field) :]) == code


def test_no_declared_byte_is_left_unread() -> None:
    """A byte more in the outer or in the inner structure, its length corrected."""
    outer = int.from_bytes(_QUOTE[632:636], "little")
    inner = int.from_bytes(_QUOTE[766:770], "little")
    longer_outer = _QUOTE[:632] + struct.pack("<I", outer + 1) + _QUOTE[636:] + b"\0"
    longer_inner = longer_outer[:766] + struct.pack("<I", inner + 1) + longer_outer[770:]

    assert _code(longer_outer) == "format"
    assert _code(longer_inner) == "format"


def test_version_3_is_for_sgx_alone() -> None:
    assert _code(b"\3" + _QUOTE[1:]) == "tee_type"


def test_every_truncation_is_refused() -> None:
    for length in range(len(_QUOTE)):
        assert _code(_QUOTE[:length]) == "format"


def test_two_thousand_mutations_meet_only_our_errors() -> None:
    for damaged in mutations(_QUOTE, 2000, seed=20261201):
        try:
            parse_quote(damaged)
        except AttestationError:
            continue


@pytest.mark.filterwarnings("ignore:.*serial number.*")
def test_mutated_certificates_and_crls_never_raise_from_an_appraisal() -> None:
    rng = random.Random(20261202)
    quote, good = FakeTee().attest(_REPORT_DATA, at=AT)
    policy, anchors = load_policy("development"), load_anchors()
    chain_at = quote.index(b"-----BEGIN") + 30
    crls = zip(
        mutations(good.pck_crl, 300, seed=20261203),
        mutations(good.root_ca_crl, 300, seed=20261204),
        strict=True,
    )
    for pck_crl, root_crl in crls:
        at = rng.randrange(chain_at, len(quote))
        changed = quote[:at] + bytes([rng.choice(b"ABCDabcd0129+/=\n")]) + quote[at + 1 :]
        collateral = replace(
            good,
            pck_crl=pck_crl,
            root_ca_crl=rng.choice((good.root_ca_crl, root_crl)),
            tcb_info_issuer_chain=rng.choice((good.tcb_info_issuer_chain, "-----BEGIN")),
        )

        for one_quote, one_collateral in ((changed, good), (quote, collateral)):
            appraise_quote(one_quote, one_collateral, policy=policy, anchors=anchors, at=AT)

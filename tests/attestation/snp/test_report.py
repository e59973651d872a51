"""Every byte of a report has its field; what drivers wrap around it comes off by name only."""

import json

import pytest

from attestation.errors import AttestationError
from attestation.snp.report import (
    fields,
    parse_report,
    report_from_buffer,
    report_from_response,
)
from tests.support.fake_snp import OFFSETS, FakeSnp
from tests.support.resources import vectors_dir

_REPORT = FakeSnp().report()
_RESPONSE = b"\0\0\0\0\xa0\4\0\0" + bytes(24) + _REPORT


def test_fields_follow_each_other_and_fill_the_report() -> None:
    offset = 0
    for field in fields(_REPORT):
        assert field.offset == offset
        offset += field.size_bytes
    assert offset == len(_REPORT) == 1184


def test_fields_lie_where_the_specification_puts_them() -> None:
    found = {field.name: (field.offset, field.size_bytes) for field in fields(_REPORT)}

    assert {name: found[name] for name in OFFSETS} == OFFSETS
    assert found["signature_r"] == (0x2A0, 48)
    assert found["signature_s"] == (0x2E8, 48)
    assert found["current_version"] == (0x1E8, 3)
    assert found["committed_version"] == (0x1EC, 3)
    assert (found["report_id"], found["report_id_ma"]) == ((0x140, 32), (0x160, 32))


def test_fields_show_numbers_with_their_bits_and_bytes_in_hex() -> None:
    shown = {field.name: field.value for field in fields(_REPORT)}

    assert shown["policy"] == "0x120137 (single_socket)"
    assert shown["platform_info"] == "0x24 (ecc, alias_check)"
    assert (shown["vmpl"], shown["family_id"]) == ("0x0", "01" * 16)
    with pytest.raises(AttestationError):
        fields(_REPORT[:-1])


def test_a_report_that_breaks_its_format_can_still_be_shown() -> None:
    assert fields(b"\xff" * 1184)[0].value == "0xffffffff"


def test_versions_say_what_they_hold() -> None:
    old = parse_report(FakeSnp().report(version=2, cpuid=bytes(3)))
    new = parse_report(FakeSnp().report(launch_mit_vector=3, current_mit_vector=7))

    assert (old.cpuid, old.launch_mit_vector, old.current_mit_vector) == (None, None, None)
    assert (new.cpuid, new.launch_mit_vector, new.current_mit_vector) == ((0x19, 0x11, 1), 3, 7)
    third = parse_report(FakeSnp().report(version=3))
    assert (third.cpuid, third.launch_mit_vector) == ((0x19, 0x11, 1), None)


def test_a_report_that_no_key_signed_is_refused_before_any_key_is_looked_at() -> None:
    with pytest.raises(AttestationError) as caught:
        parse_report(FakeSnp().report(flags=7 << 2))
    assert caught.value.code == "signing_key"


def test_flags_and_versions_of_the_firmware() -> None:
    def edit(raw: bytearray) -> None:
        raw[0x1E8:0x1EB], raw[0x1EC:0x1EF] = b"\x31\x37\1", b"\x28\x36\2"

    report = parse_report(FakeSnp().report(flags=0b111, edit=edit))

    assert (report.is_author_key_used, report.is_chip_key_masked) == (True, True)
    assert report.signing_key == "VLEK"
    assert report.current_version == (1, 0x37, 0x31)  # major, minor, build
    assert report.committed_version == (2, 0x36, 0x28)


@pytest.mark.parametrize("size", [1216, 1217, 4000])
def test_a_response_gives_its_report(size: int) -> None:
    assert report_from_response(_RESPONSE.ljust(size, b"\0")) == _REPORT


@pytest.mark.parametrize("size", [1184, 1185, 4000])
def test_a_buffer_gives_its_report(size: int) -> None:
    assert report_from_buffer(_REPORT.ljust(size, b"\0")) == _REPORT


@pytest.mark.parametrize(
    "data",
    [
        _RESPONSE[:-1],
        _RESPONSE.ljust(4001, b"\0"),
        _RESPONSE + b"\1",
        b"\x16" + _RESPONSE[1:],  # a status
        _RESPONSE[:4] + b"\xa1" + _RESPONSE[5:],
        _RESPONSE[:31] + b"\1" + _RESPONSE[32:],
        b"",
    ],
)
def test_other_responses_are_refused(data: bytes) -> None:
    with pytest.raises(AttestationError) as caught:
        report_from_response(data)
    assert caught.value.code == "format"


@pytest.mark.parametrize("data", [_REPORT[:-1], _REPORT + b"\1", _REPORT.ljust(4001, b"\0"), b""])
def test_other_buffers_are_refused(data: bytes) -> None:
    with pytest.raises(AttestationError) as caught:
        report_from_buffer(data)
    assert caught.value.code == "format"


def test_published_reports_read_as_published() -> None:
    folder = vectors_dir() / "attestation" / "snp"
    num_reports = 0
    for entry in json.loads((folder / "manifest.json").read_text())["files"]:
        if entry["kind"] != "snp-report":
            continue
        num_reports += 1
        report, facts = parse_report((folder / entry["file"]).read_bytes()), entry["facts"]
        for name in ("version", "guest_svn", "vmpl"):
            assert getattr(report, name) == facts[name]
        assert (report.policy, report.platform_info) == (
            int(facts["policy"], 16),
            int(facts["platform_info"], 16),
        )
        for name in ("report_data", "measurement", "host_data", "family_id", "chip_id"):
            assert getattr(report, name).hex() == facts[name]
    assert num_reports == 10

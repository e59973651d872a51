"""`show` and the guess at a kind: every byte is accounted for, and nothing is called verified."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from attestation.cli import attest
from attestation.errors import MalformedEvidence
from attestation.fake import FakeTee
from attestation.fields import Field
from attestation.kinds import Kind, guess_kind, unpacked
from attestation.showing import show_fields
from attestation.tdx.fields import quote_fields
from tests.attestation import samples, sessions
from tests.attestation.nvidia.device import hopper, switch
from tests.support import fake_snp
from tests.support.resources import vectors_dir

_QUOTE = FakeTee().quote(b"\x07" * 64)


def _covered(fields: Sequence[Field], size_bytes: int) -> None:
    """In order, without a gap, to the last byte."""
    offset = 0
    for field in fields:
        assert field.offset == offset, field.name
        offset += field.size_bytes
    assert offset == size_bytes


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("quote", _QUOTE),
        ("quote", _QUOTE + bytes(70)),
        ("snp", fake_snp.FakeSnp().report()),
        ("snp", fake_snp.FakeSnp().report() + bytes(2816)),
        ("gpu", hopper().report()),
        ("gpu", switch().report()),
    ],
)
def test_every_byte_is_in_one_field(kind: Kind, data: bytes) -> None:
    assert guess_kind(data) == kind
    _covered(show_fields(kind, data), len(data))


def test_every_byte_of_the_published_evidence_is_in_one_field() -> None:
    folder = vectors_dir() / "attestation"
    shown = 0
    for pattern in ("tdx/quotes/*.bin", "snp/reports/*.bin", "nvidia/gpu/*.bin"):
        for path in sorted(folder.glob(pattern)):
            data = path.read_bytes()
            _covered(show_fields(guess_kind(data), data), len(data))
            shown += 1
    assert shown > 40


def test_text_in_evidence_does_not_control_the_terminal(tmp_path: Path) -> None:
    sent = replace(samples.evidence(), statement="\x1b[2J\x1b]0;title\x07\r\nfield  ACCEPTED\x9b1m")
    (tmp_path / "bundle").write_bytes(sent.to_json())
    command = ["show", str(tmp_path / "bundle")]

    shown = CliRunner().invoke(attest, command, env={"COLUMNS": "200"})
    as_json = CliRunner().invoke(attest, [*command, "--json"])

    assert r"\x1b[2J\x1b]0;title\x07\r\nfield  ACCEPTED\x9b1m" in shown.output
    assert all(line.isprintable() for line in shown.output.splitlines())
    fields = {field["name"]: field["value"] for field in json.loads(as_json.output)["fields"]}
    assert fields["statement"] == sent.statement


def test_a_keyset_of_countless_values_is_not_shown() -> None:
    """Half a million rows would take minutes; no keyset has them."""
    sent = replace(samples.evidence(), keyset={"ohttp": [1] * 500_000})

    with pytest.raises(MalformedEvidence, match="more than"):
        show_fields("bundle", sent.to_json())


def test_values_are_the_ones_in_the_bytes() -> None:
    values = {field.name: field.value for field in quote_fields(_QUOTE)}

    assert values["header.version"] == "4 (0x4)"
    assert values["td_report.report_data"] == "07" * 64
    assert values["certification_data.type"] == "5 (0x5)"


def test_a_quote_that_ends_early_is_malformed(tmp_path: Path) -> None:
    path = tmp_path / "quote"
    path.write_bytes(_QUOTE[:-1])

    result = CliRunner().invoke(attest, ["show", str(path)])

    assert (result.exit_code, result.stdout) == (30, "")
    assert "format" in result.stderr


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (samples.evidence().to_json(), "bundle"),
        (b' {"format":"https://tinfoil.sh/predicate/attestation/v3"}', "tinfoil"),
        (sessions.token(), "nras"),
        (b"HCLA" + bytes(99), "azure-snp"),
        (b"\xd2\x84\x44\xa1\x01\x38\x22", "nitro"),
        (b"\x84\x44\xa1\x01\x38\x22", "nitro"),
    ],
)
def test_kinds_are_told_by_structure(data: bytes, kind: Kind) -> None:
    assert guess_kind(data) == kind


@pytest.mark.parametrize("data", [_QUOTE.hex().encode(), b"0x" + _QUOTE.hex().upper().encode()])
def test_hex_is_unpacked(data: bytes) -> None:
    assert unpacked(data) == _QUOTE


def test_a_bundle_shows_its_parts_as_json(tmp_path: Path) -> None:
    path = tmp_path / "bundle"
    path.write_bytes(sessions.bundle((sessions.gpu_entry(),), sessions.token()).to_json())

    result = CliRunner().invoke(attest, ["show", str(path), "--json"])
    document = json.loads(result.stdout)
    names = {field["name"] for field in document["fields"]}

    assert result.exit_code == 0
    assert (document["kind"], document["verified"]) == ("bundle", False)
    assert {"quote.td_report.mrtd", "keyset.replica", "nras.overall.iss"} <= names
    assert any(name.startswith("gpu-0.") for name in names)


def test_the_first_line_says_that_nothing_is_verified(tmp_path: Path) -> None:
    path = tmp_path / "quote"
    path.write_bytes(_QUOTE)

    result = CliRunner().invoke(attest, ["show", str(path)], env={"COLUMNS": "200"})

    assert result.stdout.startswith("quote: NOTHING of this is verified")
    assert "td_report.mrtd" in result.stdout

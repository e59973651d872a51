"""`starshade attest verify`: words for people, JSON and exit codes for scripts."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from attestation import cli
from attestation.commands.receipt import receipt
from attestation.fake import FakeTee
from attestation.model import EvidenceBundle
from tests.attestation import samples
from tests.support.resources import vectors_dir

_AT = "2026-12-01T12:00:00Z"
_NONCE = samples.NONCE.hex()
_UNREADABLE = "/proc/self/mem"  # opens, and fails when it is read


@pytest.fixture
def verify(tmp_path: Path) -> Callable[..., Result]:
    """Runs `attest verify` on a bundle or on bytes."""

    def run(evidence: EvidenceBundle | bytes, *arguments: str) -> Result:
        path = tmp_path / "evidence"
        path.write_bytes(evidence if isinstance(evidence, bytes) else evidence.to_json())
        command = ["verify", str(path), "--offline", "--at", _AT, *arguments]
        env = {"COLUMNS": "200", "XDG_CACHE_HOME": str(tmp_path)}
        return CliRunner().invoke(cli.attest, command, env=env)

    return run


def test_accepting_simulated_evidence_is_said_in_the_first_line(
    verify: Callable[..., Result],
) -> None:
    result = verify(samples.evidence(), "--policy", "development", "--nonce", _NONCE)

    assert result.exit_code == 0
    assert result.output.startswith("ACCEPTED WITH A WARNING (warning): SIMULATED")
    assert "not covered  physical_access" in result.output


def test_production_is_the_default_and_rejects_it(verify: Callable[..., Result]) -> None:
    result = verify(samples.evidence(), "--nonce", _NONCE)

    assert result.exit_code == 10
    assert result.output.startswith("REJECTED (contraindicated): untrusted_root")


def test_json_is_the_result(verify: Callable[..., Result]) -> None:
    result = verify(samples.evidence(), "--policy", "development", "--nonce", _NONCE, "--json")

    *not_covered, connection = (document := json.loads(result.output))["not_covered"]
    want = samples.judge(samples.evidence()).to_dict()
    assert document | {"not_covered": not_covered} == want
    assert connection.startswith("channel: no connection is bound")


@pytest.mark.parametrize(
    ("evidence", "arguments", "exit_code"),
    [
        (samples.evidence(), (), 2),  # a bundle without the nonce it should answer
        (samples.evidence(), ("--nonce", _NONCE, "--policy", "none.toml"), 2),
        (samples.evidence(), ("--nonce", _NONCE, "--at", "yesterday"), 2),
        (samples.evidence(), ("--nonce", _NONCE, "--at", "2026-12-01T12:00:00"), 2),
        (samples.evidence(), ("--nonce", _NONCE, "--at", "0001-01-01T00:00:00+14:00"), 2),
        (samples.evidence(), ("--nonce", _NONCE, "--at", "9999-12-31T23:59:59-01:00"), 2),
        (samples.evidence(), ("--nonce", _NONCE, "--at", "0001-01-01T00:00:00Z"), 10),
        (samples.evidence(), ("--nonce", _NONCE, "--at", "9999-12-31T23:59:59Z"), 10),
        (samples.evidence(), ("--nonce", samples.OTHER_NONCE.hex()), 10),
        (samples.evidence(), ("--nonce", "abcd"), 30),
        (b"{", ("--nonce", _NONCE), 30),
        (b"", (), 30),
        (FakeTee().quote(bytes(64)), (), 40),  # no collateral
        (FakeTee().quote(bytes(64)), ("--collateral", "none.json", "--offline"), 40),
        (replace(samples.evidence(), collateral=None), ("--nonce", _NONCE), 40),
        (replace(samples.evidence(), tee="sev-snp"), ("--nonce", _NONCE), 20),
        (samples.evidence(), ("--nonce", _NONCE, "--at", "2027-12-01T12:00:00Z"), 10),
    ],
)
def test_exit_codes(
    verify: Callable[..., Result],
    evidence: EvidenceBundle | bytes,
    arguments: tuple[str, ...],
    exit_code: int,
) -> None:
    policy = () if "--policy" in arguments else ("--policy", "development")

    assert verify(evidence, *policy, *arguments).exit_code == exit_code


def test_a_missing_evidence_file_is_a_usage_error() -> None:
    assert CliRunner().invoke(cli.attest, ["verify", "none.bin"]).exit_code == 2


@pytest.fixture
def fake_collateral(tmp_path: Path) -> str:
    """A collateral file that goes with FakeTee's quotes."""
    path = tmp_path / "collateral.json"
    path.write_text(json.dumps(FakeTee().collateral(samples.AT).to_json_value()))
    return str(path)


@pytest.mark.parametrize(
    "encode",
    [
        bytes,
        lambda quote: quote.hex().encode(),
        lambda quote: b"0x" + quote.hex().upper().encode() + b"\n",
        lambda quote: b"\n".join(quote.hex().encode()[i : i + 64] for i in range(0, 9999, 64)),
    ],
)
def test_a_bare_quote_is_read_in_binary_and_hex(
    verify: Callable[..., Result], fake_collateral: str, encode: Callable[[bytes], bytes]
) -> None:
    quote = encode(FakeTee().quote(samples.NONCE + bytes(32)))
    arguments = ("--policy", "development", "--collateral", fake_collateral)

    unasked = verify(quote, *arguments)
    asked = verify(quote, *arguments, "--nonce", _NONCE)
    stale = verify(quote, *arguments, "--nonce", samples.OTHER_NONCE.hex())

    assert (unasked.exit_code, asked.exit_code, stale.exit_code) == (0, 0, 10)
    assert "not covered  freshness" in unasked.output
    assert "not covered  freshness" not in asked.output
    assert "report_data: REPORT_DATA is not the value" in stale.output


def test_missing_collateral_has_a_next_step(verify: Callable[..., Result]) -> None:
    command = (FakeTee().quote(bytes(64)), "--policy", "development")
    told, as_json = verify(*command), verify(*command, "--json")

    assert (told.exit_code, as_json.exit_code) == (40, 40)
    assert "next:  give what is missing by --collateral" in told.stderr
    assert as_json.stderr == ""


@pytest.mark.parametrize("option", ["--tls-key", "--nras"])
def test_what_is_given_to_check_is_never_overlooked(
    verify: Callable[..., Result], fake_collateral: str, tmp_path: Path, option: str
) -> None:
    """A quote names no key and goes with no token, so comparing either would be left out."""
    (tmp_path / "token").write_bytes(b"[]")
    value = "00" * 32 if option == "--tls-key" else str(tmp_path / "token")
    arguments = ("--policy", "development", "--collateral", fake_collateral, option, value)

    result = verify(FakeTee().quote(bytes(64)), *arguments)

    assert result.exit_code == 2
    assert f"{option} is for" in result.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("attest", "show", _UNREADABLE),
        ("attest", "verify", _UNREADABLE, "--offline"),
        ("attest", "fetch", _UNREADABLE, "--offline"),
        ("attest", "measure", _UNREADABLE),
        ("receipt", "verify", _UNREADABLE, "--gateway", "https://127.0.0.1:1/v1"),
    ],
)
def test_input_that_fails_while_it_is_read_is_a_usage_error(command: tuple[str, ...]) -> None:
    """As on a disk that is going bad, or a mount whose server went away."""
    group: click.Group = cli.attest if command[0] == "attest" else receipt

    result = CliRunner().invoke(group, command[1:])

    assert result.exit_code == 2, result.exception
    assert f"cannot read {_UNREADABLE}: Input/output error" in result.stderr


@pytest.mark.parametrize(
    ("command", "member"),
    [
        (("attest", "show"), "verified"),
        (("attest", "measure", "--evidence"), "equal"),
        (("receipt", "verify", "--gateway", "https://127.0.0.1:1/v1"), "accepted"),
    ],
)
def test_a_program_is_told_in_json_why_there_is_nothing_else(
    tmp_path: Path, command: tuple[str, ...], member: str
) -> None:
    (tmp_path / "bad").write_bytes(b"{}")
    path = str(tmp_path / "bad")
    arguments = [*command[1:], path, "--json", *([path] if member == "equal" else [])]

    result = CliRunner().invoke(cli.attest if command[0] == "attest" else receipt, arguments)

    document = json.loads(result.stdout)
    assert result.exit_code == 30
    assert (document["code"], document[member]) == ("format", False)
    assert document["reason"]
    assert document["reason"] in result.stderr


def test_a_program_is_told_of_a_defect_of_ours(
    verify: Callable[..., Result], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr("attestation.commands.verify.judge", broken)
    monkeypatch.setattr("attestation.commands.fetch.sort_endorsements", broken)
    monkeypatch.setattr("attestation.commands.receipt.of_file", broken)
    path = str(tmp_path / "evidence")
    results = {
        "accepted": verify(samples.evidence(), "--nonce", _NONCE, "--json"),
        "complete": CliRunner().invoke(cli.attest, ["fetch", path, "--offline", "--json"]),
    }
    asked = ["verify", path, "--gateway", "https://127.0.0.1:1/v1", "--json"]
    for member, result in (*results.items(), ("accepted", CliRunner().invoke(receipt, asked))):
        document = json.loads(result.stdout)
        assert result.exit_code == 70
        assert (document["code"], document[member]) == ("internal", False)
        assert "secret" not in result.output


def test_a_real_quote_is_affirmed_under_production() -> None:
    folder = vectors_dir() / "attestation" / "tdx"
    command = [
        "verify",
        str(folder / "quotes" / "phala_v4_b0c06f.bin"),
        *("--collateral", str(folder / "collateral" / "tdx-b0c06f000000-20250619.json")),
        *("--at", "2025-06-19T12:16:03Z"),
    ]

    result = CliRunner().invoke(cli.attest, command)

    assert result.exit_code == 0
    assert result.output.startswith("ACCEPTED (affirming)")


def test_a_defect_of_ours_is_exit_70_and_tells_no_evidence(
    verify: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr("attestation.commands.verify.judge", broken)

    result = verify(samples.evidence(), "--nonce", _NONCE)

    assert result.exit_code == 70
    assert "secret" not in result.output
    assert "ZeroDivisionError" in result.output

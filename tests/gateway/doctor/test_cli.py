"""Does `starshade doctor` show everything, keep secrets, and end with the right status?"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from attestation.fetch import complete
from attestation.fetch.complete import Completion
from attestation.fetch.errors import FetchFailed
from gateway.cli import main
from gateway.doctor import cli, machine, remote
from gateway.doctor.finding import Finding, ok, wrong
from gateway.sockets import listen_tcp
from gateway.whereabouts import noted
from tests.support.attested_gateway import running_gateway
from tests.support.servers import free_port
from tests.support.tls import require_client_of, self_signed


@pytest.fixture
def flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A set-up that could start, on a machine that lacks nothing."""
    model = tmp_path / "tiny.gguf"
    model.write_bytes(b"GGUF....")
    config = tmp_path / "starshade.toml"
    config.write_text(
        f'[worker]\nmodel = "{model}"\n[gateway]\nport = {free_port()}\n'
        f"[observatory]\nport = {free_port()}\n[engine]\nkv_cache_bytes = 1048576\n"
    )
    monkeypatch.setattr(machine, "clock", lambda _now: ok("clock", "kept"))
    return ["--config", str(config), "--state-dir", str(tmp_path / "state")]


def run(*arguments: str) -> Result:
    return CliRunner(env={"STARSHADE_POLICY": None}).invoke(main, ["doctor", *arguments])


def findings(result: Result) -> dict[str, Any]:
    return {finding["name"]: finding for finding in json.loads(result.stdout)["findings"]}


def test_a_sound_set_up_ends_with_zero(flags: list[str]) -> None:
    result = run(*flags)
    assert result.exit_code == 0, result.output
    assert "nothing is wrong" in result.output
    assert "start it with `starshade up`" in result.output


def test_one_thing_wrong_ends_with_one_and_its_next_step(flags: list[str]) -> None:
    result = run(*flags, "--policy", "production")
    assert result.exit_code == 1
    assert "1 thing is wrong" in result.output
    assert "[tee_unavailable]" in result.output
    assert "next: " in result.output


def test_json_has_every_finding_whole(flags: list[str]) -> None:
    result = run(*flags, "--json")
    report = json.loads(result.stdout)
    assert (report["schema"], report["ok"]) == ("starshade/doctor/v1", True)
    members = {"name", "outcome", "found", "code", "next_step"}
    assert all(finding.keys() == members for finding in report["findings"])
    for finding in report["findings"]:
        assert bool(finding["next_step"]) == (finding["outcome"] != "ok"), finding


def test_a_configuration_that_is_none_is_a_finding(flags: list[str], tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_text('gateway.port = "many"\nnonsense = 1\n')
    result = run("--config", str(broken), "--json")
    assert result.exit_code == 1
    problems = [f for f in json.loads(result.stdout)["findings"] if f["name"] == "configuration"]
    assert [f["code"] for f in problems] == ["config_invalid", "config_invalid"]


def test_a_check_that_fails_itself_does_not_hide_the_others(
    flags: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Finding:
        raise RuntimeError("sk-starshade-secret")

    monkeypatch.setattr(machine, "open_files", broken)
    result = run(*flags, "--json")
    assert findings(result)["open files"]["code"] == "internal_error"
    assert "gateway" in findings(result)
    assert "secret" not in result.output


def test_the_kept_key_is_used_and_never_shown(flags: list[str], tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    (state / "dev-api-key").touch(mode=0o600)
    (state / "dev-api-key").write_text("sk-starshade-topsecret")
    result = run(*flags)
    assert "topsecret" not in result.output
    assert str(state / "dev-api-key") in result.output


def test_looking_makes_nothing(flags: list[str], tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    run(*flags)
    assert sorted(tmp_path.rglob("*")) == before


def test_the_processes_of_the_folder_are_asked_where_they_are(
    flags: list[str], tmp_path: Path
) -> None:
    """Not where this configuration would start them."""
    port, run_dir = free_port(), tmp_path / "state" / "run"
    with (
        noted(run_dir / "observatory.json", host="127.0.0.1", port=port),
        noted(run_dir / "gateway.json", host="127.0.0.1", port=free_port()),
        listen_tcp("127.0.0.1", port),
    ):
        found = findings(run(*flags, "--json"))
    assert f"port {port}" in found["dashboard"]["found"]
    assert found["gateway"]["outcome"] == "ok"


@pytest.fixture
def gateway_url(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """An attested gateway on a TLS port, and the CA of its certificate."""
    with running_gateway(self_signed(tmp_path)) as running:
        yield running.url, running.ca_file


def test_an_own_gateway_that_wants_client_certificates_is_shown_one(tmp_path: Path) -> None:
    certificate = self_signed(tmp_path)
    with running_gateway(certificate) as running:
        require_client_of(running.tls, certificate)
        found = remote.evidence(
            running.url,
            policy="development",
            ca_file=running.ca_file,
            collateral_folder=tmp_path,
            client_certificate=certificate,
        )
    assert found.code == "tee_simulated"


def test_evidence_is_looked_at_without_fetching_or_writing(
    gateway_url: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = []

    def lacking(_kind: str, completion: Completion) -> None:
        assert completion.endorser.fetcher is None
        assert completion.endorser.cache is not None
        folders.append(completion.endorser.cache.folder)
        raise FetchFailed("endorsement_missing", "offline", "the VCEK: not in the cache")

    monkeypatch.setattr(complete, "complete", lacking)
    url, ca_file = gateway_url
    cache = ("--cache-dir", str(tmp_path / "cache"))
    result = run(url, "--ca-file", str(ca_file), "--policy", "development", *cache, "--json")
    assert result.exit_code == 0, result.output
    found = findings(result)["gateway's evidence"]
    assert (found["outcome"], found["code"]) == ("warning", "endorsement_missing")
    assert "starshade attest verify" in found["next_step"]
    assert folders == [tmp_path / "cache" / "collateral"]


def test_a_gateway_elsewhere_is_looked_at_from_here(gateway_url: tuple[str, Path]) -> None:
    url, ca_file = gateway_url
    result = run(url, "--ca-file", str(ca_file), "--policy", "development", "--json")
    assert result.exit_code == 0, result.output
    assert findings(result)["network"]["outcome"] == "ok"
    assert findings(result)["gateway's evidence"]["code"] == "tee_simulated"
    assert "model" not in findings(result)


@pytest.mark.parametrize(
    ("arguments", "code", "hint"),
    [
        (("--ca-file", "{ca}"), "untrusted_root", "--policy development"),
        ((), "evidence_unavailable", "name the CA"),
    ],
)
def test_what_stands_in_the_way_comes_with_its_next_step(
    gateway_url: tuple[str, Path], arguments: tuple[str, ...], code: str, hint: str
) -> None:
    url, ca_file = gateway_url
    result = run(url, *(a.format(ca=ca_file) for a in arguments), "--json")
    assert result.exit_code == 1
    found = findings(result)["gateway's evidence"]
    assert (found["outcome"], found["code"]) == ("wrong", code)
    assert hint in found["next_step"]


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("https://127.0.0.1:1/v1", "evidence_unavailable"),
        ("https://no-such-host.invalid/v1", "name_unknown"),
        ("http://127.0.0.1/v1", "invalid_value"),
    ],
)
def test_a_gateway_out_of_reach_is_not_asked_for_evidence(url: str, code: str) -> None:
    result = run(url, "--json")
    assert result.exit_code == 1
    assert findings(result)["network"]["code"] == code
    assert "gateway's evidence" not in findings(result)


def test_the_summary_counts() -> None:
    warned = Finding(name="a", outcome="warning", found="", code="c", next_step="n")
    bad = Finding(name="a", outcome="wrong", found="", code="c", next_step="n")
    assert cli._summary([]) == "nothing is wrong"
    assert cli._summary([warned]) == "nothing is wrong, 1 warning"
    assert cli._summary([bad, bad, warned, warned]) == "2 things are wrong, 2 warnings"


def test_what_a_gateway_said_is_no_control_of_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    evil = "\x1b]0;owned\x07 [bold]"
    cli._show([wrong(f"verdict on {evil}", f"{evil}\nmore", code=evil, next_step=evil)])
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert shown.count("[bold]") == 4
    assert "\\x1b" in shown

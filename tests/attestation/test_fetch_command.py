"""`starshade attest fetch`, and `attest verify` that finds what it needs by itself."""

import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
from click.testing import CliRunner, Result

from attestation.cli import attest
from attestation.errors import MalformedEvidence
from attestation.fake import FakeTee
from attestation.fetch.config import DEFAULT_URLS, FetchConfig
from tests.attestation import samples
from tests.attestation.fetch.nvidia_services import OcspResponder, rim_routes
from tests.attestation.fetch.service import FakeService, Reply
from tests.attestation.fetch.vendors import DAY, PCS_PATHS, FakePcs
from tests.attestation.nvidia.device import AT, NONCE, hopper, pem
from tests.attestation.samples import evidence

_AT = "2026-12-01T12:00:00Z"
_PCS = FakePcs()
_ROOT_CRL = "/sgx/certification/v4/rootcacrl"


@pytest.fixture
def service() -> Iterator[FakeService]:
    routes = dict(_PCS.routes())
    root_crl = routes.pop(PCS_PATHS["root_crl"])
    routes[_ROOT_CRL] = Reply(content=root_crl.content.hex().encode())
    with FakeService(routes) as running:
        yield running


@pytest.fixture
def quote(tmp_path: Path) -> str:
    path = tmp_path / "quote.bin"
    path.write_bytes(FakeTee().quote(samples.NONCE + bytes(32)))
    return str(path)


@pytest.fixture
def run(tmp_path: Path) -> "Runner":
    return Runner(tmp_path / "cache")


class Runner:
    """Runs a command with a cache of its own and no way to the vendors themselves."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        (cache.parent / "fetch.toml").write_text(
            '[pcs]\nurls = ["http://127.0.0.1:1"]\nroot_crl_urls = ["http://127.0.0.1:1/x"]\n'
            '[kds]\nurls = ["http://127.0.0.1:1"]\n[nras]\nurls = ["http://127.0.0.1:1"]\n'
            "[network]\nattempts = 1\n"
        )

    def __call__(self, command: str, file: str, *arguments: str, columns: str = "200") -> Result:
        own = ["--at", _AT, "--fetch-config", str(self.cache.parent / "fetch.toml")]
        return CliRunner().invoke(
            attest,
            [command, file, *own, *arguments],
            env={"COLUMNS": columns, "XDG_CACHE_HOME": str(self.cache)},
        )


def _no_socket(*_: object, **__: object) -> NoReturn:
    raise AssertionError("offline opened a socket")


def test_verify_fetches_and_then_needs_no_network(
    service: FakeService, quote: str, run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("--policy", "development", "--nonce", samples.NONCE.hex())

    assert run("verify", quote, *arguments, "--offline").exit_code == 40
    fetched = run("verify", quote, *arguments, "--pcs", service.url)
    assert fetched.exit_code == 0, fetched.output
    assert len(service.calls) == 4
    assert run("verify", quote, *arguments, "--pcs", service.url).exit_code == 0
    assert len(service.calls) == 4

    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, _no_socket)
    offline = run("verify", quote, *arguments, "--offline")
    assert (offline.exit_code, offline.output) == (0, fetched.output)


def test_offline_with_nothing_at_hand_opens_no_socket(
    quote: str, run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "bundle.json"
    bundle.write_bytes(replace(evidence(), collateral=None).to_json())
    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, _no_socket)

    for command, file, more in (
        ("fetch", quote, ()),
        ("verify", quote, ("--policy", "development")),
        (
            "verify",
            str(bundle),
            ("--policy", "development", "--nonce", samples.NONCE.hex()),
        ),
    ):
        result = run(command, file, "--offline", *more)
        assert result.exit_code == 40, result.output
        assert "endorsement_missing" in result.output
    assert not run.cache.exists()


def test_a_bundle_without_collateral_is_completed(
    service: FakeService, run: Runner, tmp_path: Path
) -> None:
    bundle = tmp_path / "bundle.json"
    bundle.write_bytes(replace(evidence(), collateral=None).to_json())

    result = run(
        "verify",
        str(bundle),
        *("--policy", "development", "--nonce", samples.NONCE.hex(), "--pcs", service.url),
    )

    assert result.exit_code == 0, result.output
    assert len(service.calls) == 4


def test_what_is_given_or_carried_is_not_fetched(
    service: FakeService, quote: str, run: Runner, tmp_path: Path
) -> None:
    given = tmp_path / "collateral.json"
    given.write_text(json.dumps(FakeTee().collateral(samples.AT).to_json_value()))
    bundle = tmp_path / "bundle.json"
    bundle.write_bytes(evidence().to_json())
    arguments = ("--policy", "development", "--nonce", samples.NONCE.hex(), "--pcs", service.url)

    assert run("verify", quote, *arguments, "--collateral", str(given)).exit_code == 0
    assert run("verify", str(bundle), *arguments).exit_code == 0
    assert not service.calls


def test_a_root_that_the_policy_refuses_causes_no_traffic(
    service: FakeService, quote: str, run: Runner
) -> None:
    result = run("verify", quote, "--pcs", service.url)

    assert result.exit_code == 10
    assert "untrusted_root" in result.output
    assert not service.calls


def test_fetch_says_what_from_where_and_until_when(
    service: FakeService, quote: str, run: Runner, tmp_path: Path
) -> None:
    out = tmp_path / "own.json"
    first = run("fetch", quote, "--pcs", service.url, "--out", str(out))
    assert first.exit_code == 0, first.output
    assert first.output.startswith("COMPLETE: 4 endorsements")
    for word in ("TCB info", "QE identity", "PCK CRL", "root CRL", "127.0.0.1", "2026-12-21"):
        assert word in first.output

    again = run("fetch", quote, "--offline", "--json")
    document = json.loads(again.output)
    assert again.exit_code == 0
    assert (document["complete"], document["problems"]) == (True, [])
    assert {item["origin"] for item in document["endorsements"]} == {"cache"}

    verified = run(
        "verify", quote, "--policy", "development", "--collateral", str(out), "--offline"
    )
    assert verified.exit_code == 0


def test_fetch_refreshes_when_told_to(service: FakeService, quote: str, run: Runner) -> None:
    run("fetch", quote, "--pcs", service.url)
    service.routes[PCS_PATHS["tcb"]] = _PCS.tcb(samples.AT, samples.AT + 25 * DAY)

    assert "2026-12-26" not in run("fetch", quote, "--pcs", service.url).output
    assert "2026-12-26" in run("fetch", quote, "--pcs", service.url, "--refresh").output


@pytest.mark.parametrize(
    ("reply", "exit_code", "said"),
    [
        (Reply(status=404), 40, "endorsement_missing"),
        (_PCS.signed("tcbInfo", "{}"), 10, "tcb_info_mismatch"),
    ],
)
def test_fetch_failures(
    service: FakeService, quote: str, run: Runner, reply: Reply, exit_code: int, said: str
) -> None:
    service.routes[PCS_PATHS["tcb"]] = reply

    result = run("fetch", quote, "--pcs", service.url, "--json")

    assert result.exit_code == exit_code
    document = json.loads(result.output)
    assert (document["complete"], document["problems"][-1]["code"]) == (False, said)


def test_what_could_not_be_had_is_one_line_with_the_next_step(
    service: FakeService, quote: str, run: Runner
) -> None:
    """Where no terminal shows them lines are neither wrapped nor padded."""
    service.routes[PCS_PATHS["tcb"]] = Reply(status=302, headers={"Location": "file:///etc/passwd"})

    result = run("fetch", quote, "--pcs", service.url, columns="40")

    said = "endorsement_missing: TCB info: pcs at 127.0.0.1: to a host that is not in the settings"
    assert said in result.stdout.splitlines()
    assert "next:  check that the vendors' services can be reached" in result.stderr
    assert "next:" not in run("fetch", quote, "--pcs", service.url, "--json").stderr


def test_fetch_of_what_is_no_evidence(run: Runner, tmp_path: Path) -> None:
    path = tmp_path / "junk"
    path.write_bytes(b"junk")

    assert run("fetch", str(path)).exit_code == 30


@pytest.mark.parametrize(
    "arguments",
    [
        ("--pcs", "http://pccs.internal"),
        ("--pcs", "https://name:s3cret@pccs.internal"),
        ("--proxy", "https://name:s3cret@proxy"),
        ("--ca-file", "/nonexistent.pem"),
        ("--fetch-config", "/nonexistent.toml"),
    ],
)
def test_settings_that_cannot_be_used(quote: str, run: Runner, arguments: tuple[str, ...]) -> None:
    for command in ("fetch", "verify"):
        more = ("--policy", "development") if command == "verify" else ()
        result = run(command, quote, *more, *arguments)
        assert result.exit_code == 2, result.output
        assert "s3cret" not in result.output


def test_a_gpu_report_with_its_chain(run: Runner, tmp_path: Path) -> None:
    """RIMs and OCSP answers under test roots do not verify under the pinned ones, so none stay."""
    device = hopper()
    (tmp_path / "report").write_bytes(device.report(NONCE))
    (tmp_path / "chain").write_bytes(pem(device.certificates()))
    responder = OcspResponder(devices=(device,), this_update=AT)
    with FakeService({**rim_routes(), "/": responder}) as service:
        result = run(
            "fetch",
            str(tmp_path / "report"),
            *("--collateral", str(tmp_path / "chain"), "--rim", service.url),
            *("--ocsp", service.url, "--json"),
        )

    assert result.exit_code == 10
    assert json.loads(result.output)["problems"][0]["code"] == "untrusted_root"
    assert not service.calls


def test_many_objects_go_into_a_folder(run: Runner, tmp_path: Path) -> None:
    from attestation.commands.fetch import _named, _write
    from attestation.endorsement_files import EndorsementFiles, sort_endorsements
    from tests.support.fake_snp import FakeSnp

    tee = FakeSnp()
    files = EndorsementFiles(
        certificates=[tee.vek()], chains=[tee.chain()], crls=[tee.crl()], rims=[b"<rim/>"]
    )

    _write(tmp_path / "out", _named(files, b'{"keys": []}'))

    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["certificate-0.der", "chain-0.pem", "crl-0.der", "jwks.json", "rim-0.xml"]
    again = sort_endorsements(
        (tmp_path / "out" / name).read_bytes() for name in names if name != "jwks.json"
    )
    assert again.snp() == files.snp()


def test_a_pccs_is_asked_for_the_root_crl_before_intel() -> None:
    config = FetchConfig().with_pcs(("https://pccs/", "https://other"))

    assert config.urls["root_crl"] == (
        "https://pccs" + _ROOT_CRL,
        "https://other" + _ROOT_CRL,
        *DEFAULT_URLS["root_crl"],
    )
    assert FetchConfig().with_pcs(()) == FetchConfig()


def test_fetch_prints_no_control_of_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A RIM's id comes from a device, an answer's reason from wherever it was fetched."""
    from attestation.commands.fetch import _show
    from attestation.fetch.endorser import Endorser, Obtained

    monkeypatch.setenv("COLUMNS", "200")
    hostile = "\x1b]0;title\x07"
    item = Obtained(what=hostile, origin=hostile, valid_until=AT, sha256="", note=hostile)
    endorser = Endorser(at=AT, now=AT, cache=None, fetcher=None, obtained=[item])

    _show(endorser, [MalformedEvidence("format", f"[bold]{hostile}")])

    printed = capsys.readouterr().out
    assert all(line.isprintable() for line in printed.splitlines())
    assert printed.count(r"\x1b]0;title\x07") == 4
    assert "[bold]" in printed

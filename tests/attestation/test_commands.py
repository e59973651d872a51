"""The other commands, and each kind of Evidence at `attest verify`: exit codes and first lines."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from cryptography.hazmat.primitives.serialization import Encoding

import attestation
from attestation.cli import attest
from attestation.collect.errors import TeeUnavailable
from attestation.endorsement_files import sort_endorsements
from attestation.errors import AttestationError
from attestation.fake import FakeTee
from attestation.fake.pki import FakePki
from attestation.fake.pki import pem as fake_pem
from tests.attestation import samples, sessions
from tests.attestation.nras.samples import good_answer, to_json
from tests.attestation.nvidia.device import hopper, pem
from tests.attestation.samples import NONCE
from tests.support import fake_snp
from tests.support.resources import vectors_dir

_AT = "2026-12-01T12:00:00Z"
_POLICY = Path(attestation.__file__).parent / "policies" / "vectors.toml"


def _run(*arguments: str) -> Result:
    """Without a network: `verify` takes what is given and what an empty cache holds."""
    offline = ("--offline",) if arguments[0] == "verify" else ()
    env = {"COLUMNS": "200", "XDG_CACHE_HOME": "/nonexistent"}
    return CliRunner().invoke(attest, [*arguments, *offline], env=env)


def _write(folder: Path, **files: bytes) -> dict[str, str]:
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return {name: str(folder / name) for name in files}


def test_a_foreign_root_is_a_warning_that_a_policy_must_name(tmp_path: Path) -> None:
    """Production rejects with the warning tier, development accepts with it."""
    tee = FakeTee(pki=FakePki(seed=b"mine"))
    files = _write(
        tmp_path,
        quote=tee.quote(bytes(64)),
        collateral=json.dumps(tee.collateral(samples.AT).to_json_value()).encode(),
        root=tee.pki.root.public_bytes(Encoding.PEM),
        other=FakePki(seed=b"other").root.public_bytes(Encoding.DER),
    )
    command = ("verify", files["quote"], "--collateral", files["collateral"], "--at", _AT)

    without = _run(*command, "--policy", "development")
    other = _run(*command, "--policy", "development", "--trust-anchor", files["other"])
    development = _run(*command, "--policy", "development", "--trust-anchor", files["root"])
    production = _run(*command, "--trust-anchor", files["root"], "--json")

    assert (without.exit_code, other.exit_code) == (10, 10)
    assert "untrusted_root" in without.output
    assert development.exit_code == 0
    assert development.output.startswith("ACCEPTED WITH A WARNING (warning): FOREIGN ROOT")
    assert "not covered  vendor:" in development.output
    document = json.loads(production.output)
    assert production.exit_code == 10
    assert (document["tier"], document["code"]) == ("warning", "untrusted_root")
    assert document["trust_anchor"].startswith("foreign-")


def test_a_trust_anchor_is_one_certificate(tmp_path: Path) -> None:
    own, other = (FakePki(seed=seed).root for seed in (b"mine", b"other"))
    der = own.public_bytes(Encoding.DER)
    good = _write(tmp_path, quote=b"", der=der, pem=fake_pem((own,)))
    bad = _write(
        tmp_path,
        none=b"no certificate",
        two=fake_pem((own, other)),
        behind=der + b"\0",
        two_der=der + other.public_bytes(Encoding.DER),
        text=fake_pem((own,)) + b"and more",
    )

    for name in ("der", "pem"):
        assert _run("verify", good["quote"], "--trust-anchor", good[name]).exit_code == 30, name
    for name, path in bad.items():
        result = _run("verify", good["quote"], "--trust-anchor", path)
        assert result.exit_code == 2, name
        assert "--trust-anchor" in result.stderr, name


def test_an_snp_report_with_its_endorsements(tmp_path: Path) -> None:
    machine = fake_snp.FakeSnp()
    root = machine.ark()
    files = _write(
        tmp_path,
        report=machine.report(report_data=NONCE + bytes(32)),
        vek=machine.vek(),
        chain=machine.chain(),
        crl=machine.crl(),
        root=root,
    )
    command = ["verify", files["report"], "--at", _AT, "--policy", "development"]
    command += ["--trust-anchor", files["root"], "--nonce", NONCE.hex()]
    endorsed = [part for name in ("vek", "chain", "crl") for part in ("--collateral", files[name])]

    assert _run(*command).exit_code == 40  # no endorsements
    refused = _run(*command, *endorsed, "--json")
    assert json.loads(refused.output)["code"] == "chain"  # the fake CA is in no list of AMD's


def test_a_gpu_report_needs_its_chain_and_our_nonce(tmp_path: Path) -> None:
    device = hopper()
    root = device.pki.root.public_bytes(Encoding.DER)
    files = _write(
        tmp_path, report=device.report(NONCE), chain=pem(device.certificates()), root=root
    )
    command = ["verify", files["report"], "--at", _AT, "--policy", str(_POLICY)]
    command += ["--trust-anchor", files["root"]]
    chain = ["--collateral", files["chain"]]

    assert _run(*command, *chain).exit_code == 2
    assert _run(*command, "--nonce", NONCE.hex()).exit_code == 40
    assert _run(*command, *chain, "--nonce", samples.OTHER_NONCE.hex()).exit_code == 10
    accepted = _run(*command, *chain, "--nonce", NONCE.hex())
    assert accepted.exit_code == 0
    assert "not covered  gpu_relay" in accepted.output


def test_an_nras_token_needs_its_keys(tmp_path: Path) -> None:
    files = _write(
        tmp_path, token=sessions.token(NONCE), jwks=to_json(good_answer().jwks), junk=b"{}"
    )
    command = ["verify", files["token"], "--at", _AT, "--nonce", NONCE.hex()]

    assert _run(*command).exit_code == 40
    assert _run(*command, "--jwks", files["jwks"]).exit_code == 0
    assert _run(*command, "--jwks", files["junk"]).exit_code == 30


def test_a_nitro_document() -> None:
    folder = vectors_dir() / "attestation" / "nitro"
    document = str(folder / "dstack-useast1-a.cose")
    command = ("verify", document, "--at", "2025-12-25T16:04:19Z")

    assert _run(*command).exit_code == 10  # production takes none
    assert _run(*command, "--policy", "development").exit_code == 0
    nonce = _run(*command, "--policy", "development", "--nonce", NONCE.hex())
    assert "report_data" in nonce.output


def test_the_published_session_by_hand(tmp_path: Path) -> None:
    folder = vectors_dir() / "attestation"
    (case,) = json.loads((folder / "composite.json").read_text())["cases"]
    inputs = {name: str(folder / path) for name, path in case["inputs"].items()}
    command = ["verify", inputs["document"], "--at", case["verify_at"], "--nonce", case["nonce"]]
    policy = tmp_path / "policy.toml"
    policy.write_text(_POLICY.read_text().replace('nras = "when_present"', 'nras = "required"'))
    command += ["--collateral", inputs["tdx_collateral"], "--policy", str(policy)]
    token = ["--nras", inputs["nras_eat"], "--jwks", inputs["nras_jwks"]]

    assert _run(*command, *token).exit_code == 0
    assert "evidence_missing" in _run(*command).output
    right, wrong = case["binding"]["tls_key_fp"], "00" * 32
    assert "not covered  channel" not in _run(*command, *token, "--tls-key", right).output
    assert "channel_binding" in _run(*command, *token, "--tls-key", wrong).output
    assert _run(*command, *token, "--tls-key", "00").exit_code == 2


def test_vectors_says_what_does_not_hold(tmp_path: Path) -> None:
    case = {
        "id": "wrong-about-this",
        "inputs": {"doc": "doc"},
        "verify_at": _AT,
        "expected": {"verdict": "accept"},
    }
    folder = tmp_path / "nitro"
    folder.mkdir()
    (folder / "doc").write_bytes(b"")
    (folder / "manifest.json").write_text(json.dumps({"cases": [case]}))

    text, as_json = _run("vectors", str(folder)), _run("vectors", str(tmp_path), "--json")

    assert (text.exit_code, as_json.exit_code) == (1, 1)
    assert "FAIL nitro/wrong-about-this: rejected with format" in text.output
    assert text.output.endswith("0 passed, 1 failed\n")
    assert json.loads(as_json.output)["failed"] == 1


def test_vectors_prints_no_control_of_the_terminal(tmp_path: Path) -> None:
    case = {
        "id": "\x1b[2Jgone\n0 failed",
        "inputs": {"doc": "doc"},
        "verify_at": _AT,
        "expected": {"verdict": "reject", "error_class": "\x1b]0;title\x07"},
    }
    folder = tmp_path / "nitro"
    folder.mkdir()
    (folder / "doc").write_bytes(b"")
    (folder / "manifest.json").write_text(json.dumps({"cases": [case]}))

    result = CliRunner().invoke(attest, ["vectors", str(folder)], color=True)

    assert result.exit_code == 1
    assert r"FAIL nitro/\x1b[2Jgone\n0 failed: rejected with format, want \x1b]0" in result.output
    assert all(line.isprintable() for line in result.output.splitlines())


def test_vectors_of_one_folder() -> None:
    result = _run("vectors", str(vectors_dir() / "attestation" / "jwt"))

    assert result.exit_code == 0
    assert result.output.endswith("33 passed, 0 failed\n")


def test_a_folder_without_cases_is_a_usage_error(tmp_path: Path) -> None:
    assert _run("vectors", str(tmp_path)).exit_code == 2
    (tmp_path / "nitro").mkdir()
    (tmp_path / "nitro" / "manifest.json").write_text('{"cases": []}')
    assert _run("vectors", str(tmp_path)).exit_code == 2


@pytest.mark.parametrize("name", ["production", "development"])
def test_policy_check_says_what_a_policy_asks(name: str) -> None:
    text, as_json = _run("policy", "check", name), _run("policy", "check", name, "--json")
    document = json.loads(as_json.output)

    assert (text.exit_code, as_json.exit_code) == (0, 0)
    assert text.output.startswith(f"{name} {document['sha256']}")
    assert "tdx: NO reference values" in text.output
    assert document["rules"]["tdx"][0] == "debug_off"


def test_policy_check_says_what_would_be_a_warning() -> None:
    everything = Path(__file__).with_name("everything.toml")
    told = {
        name: _run("policy", "check", name).output
        for name in ("production", "development", str(everything))
    }
    document = json.loads(_run("policy", "check", str(everything), "--json").output)

    assert "accepts with a warning: nothing\n" in told["production"]
    want = "product line Milan, a root of kind fake, a root of kind foreign"
    assert f"accepts with a warning: {want}\n" in told["development"]
    late = "an OCSP answer that ended less than 3600 s ago"
    assert f"{late}, a root of kind fake" in told[str(everything)]
    assert document["accepted_with_warning"][-3:-1] == [late, "a root of kind fake"]


def test_policy_check_names_every_problem(tmp_path: Path) -> None:
    files = _write(tmp_path, policy=b'name = "x"\nwrong = 1\n')

    text = _run("policy", "check", files["policy"])
    as_json = _run("policy", "check", files["policy"], "--json")

    assert (text.exit_code, as_json.exit_code) == (1, 1)
    assert "wrong: unknown key" in text.stderr.splitlines()
    assert "evidence: missing" in json.loads(as_json.stdout)["problems"]
    assert _run("policy", "check", str(tmp_path / "none.toml")).exit_code == 2


def test_collect_tells_without_any_control_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_tee(**_: object) -> None:
        raise TeeUnavailable("provider \x1b[2J", next_step="look at \x1b[2J")

    monkeypatch.setattr("attestation.commands.collect.open_tee", no_tee)

    result = CliRunner().invoke(attest, ["collect", "--nonce", NONCE.hex()], color=True)

    assert result.exit_code == 20
    assert result.stderr.splitlines() == [
        r"tee_unavailable: provider \x1b[2J",
        r"next: look at \x1b[2J",
    ]


def test_endorsements_are_sorted_by_what_they_are() -> None:
    machine, device = fake_snp.FakeSnp(), hopper()
    files = sort_endorsements(
        [
            machine.vek(),
            machine.crl(),
            fake_snp.pem(machine.vek()),
            pem(device.certificates()),
            b"<rim/>",
            json.dumps(FakeTee().collateral(samples.AT).to_json_value()).encode(),
        ]
    )

    assert len(files.certificates) == 2
    assert (len(files.crls), len(files.chains), len(files.rims)) == (1, 1, 1)
    assert files.tdx is not None
    with pytest.raises(AttestationError, match="none of those"):
        sort_endorsements([b"junk"])

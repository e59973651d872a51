"""Which TEE a machine has, and bundles of it that a verifier accepts."""

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from attestation.binding import gpu_nonce, keyset_digest
from attestation.cli import attest
from attestation.collect import GuestTee, TeeUnavailable, open_tee
from attestation.collect import tee as tee_module
from attestation.collect.configfs import ConfigfsTsm
from attestation.collect.detect import CCEL, CONFIGFS, SEV_GUEST, detect_guest
from attestation.collect.nvml import Nvml
from attestation.commands import collect as command
from attestation.evidence import make_bundle
from attestation.fake import FakeTee
from attestation.model import EvidenceBundle, GpuEntry, parse_bundle
from attestation.snp.endorsements import SnpEndorsements
from attestation.strict_json import parse_object
from tests.attestation import samples
from tests.attestation.collect.kernel import FakeNvml
from tests.attestation.collect.test_sev_guest import cert_table, fingerprints
from tests.attestation.nvidia.device import hopper, pem
from tests.attestation.samples import AT, NONCE
from tests.support.fake_snp import FakeSnp


def _no_gpus(_: bytes) -> tuple[GpuEntry, ...]:
    return ()


def _fake_tdx(**changes: Any) -> GuestTee:
    """A TDX guest whose quotes are FakeTee's; labelled as what they are."""
    made = GuestTee(
        tee="fake-tdx",
        quote=lambda data: (FakeTee().quote(data), b""),
        gpus=_no_gpus,
        event_log_path=Path("/nonexistent"),
    )
    return replace(made, **changes)


def _touch(root: Path, *names: str, text: str = "") -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("files", "folder", "kind", "interface"),
    [
        ({"proc/cpuinfo": "flags\t: fpu tdx_guest"}, True, "tdx", "configfs"),
        ({"proc/cpuinfo": "flags\t: fpu sev_snp"}, True, "snp", "configfs"),
        ({"proc/cpuinfo": "flags\t: fpu tdx_guest"}, False, "tdx", "none"),
        ({"dev/tdx_guest": ""}, False, "tdx", "tdx-guest"),
        ({"dev/tdx-guest": ""}, False, "tdx", "tdx-guest"),
        ({SEV_GUEST: ""}, False, "snp", "sev-guest"),
        ({SEV_GUEST: ""}, True, "snp", "configfs"),
        ({"proc/cpuinfo": "model : x\nflags : fpu\nflags : sev_snp"}, False, "none", "none"),
        ({}, False, "none", "none"),
    ],
)
def test_detection(
    tmp_path: Path, files: dict[str, str], folder: bool, kind: str, interface: str
) -> None:
    for name, text in files.items():
        _touch(tmp_path, name, text=text)
    if folder:
        (tmp_path / CONFIGFS).mkdir(parents=True)

    guest = detect_guest(tmp_path)

    assert (guest.kind, guest.interface) == (kind, interface)
    assert bool(guest.next_step) == (interface == "none")


@pytest.mark.parametrize(
    ("name", "text", "step"),
    [
        ("proc/cpuinfo", "flags : tdx_guest", "load tdx-guest"),
        ("proc/cpuinfo", "flags : sev_snp", "load sev-guest"),
        ("sys/class/dmi/id/chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77\n", "vTPM"),
        ("sys/module/kvm_amd/x", "", "this is a host"),
        ("sys/module/kvm_intel/x", "", "this is a host"),
        ("other", "", "run inside a TDX or SEV-SNP guest"),
    ],
)
def test_what_to_do_without_an_interface(tmp_path: Path, name: str, text: str, step: str) -> None:
    _touch(tmp_path, name, text=text)

    with pytest.raises(TeeUnavailable) as caught:
        open_tee(tmp_path)

    assert (caught.value.code, step in caught.value.next_step) == ("tee_unavailable", True)


def test_a_bundle_of_a_real_interface_is_accepted(tmp_path: Path) -> None:
    log = tmp_path / CCEL
    _touch(tmp_path, CCEL, text="event log")

    bundle = make_bundle(_fake_tdx(event_log_path=log), NONCE, samples.keyset(), AT)

    assert bundle.event_log == base64.b64encode(b"event log").decode()
    assert parse_bundle(bundle.to_json()) == bundle
    completed = replace(bundle, collateral=FakeTee().collateral(AT))
    assert samples.judge(completed).is_accepted


def test_gpus_answer_the_nonce_made_of_ours_and_the_keyset() -> None:
    device = hopper()
    nonces: list[bytes] = []

    def report(nonce: bytes) -> bytes:
        nonces.append(nonce)
        return device.report(nonce)

    library = FakeNvml(devices=[(9, pem(device.certificates()), report)])
    keyset = samples.keyset()

    bundle = make_bundle(_fake_tdx(gpus=Nvml(library=library).collect), NONCE, keyset, AT)

    assert nonces == [gpu_nonce(NONCE, keyset_digest(keyset))]
    assert len(bundle.gpu) == 1
    completed = replace(bundle, collateral=FakeTee().collateral(AT))
    result = samples.judge(completed)
    binding = next(check for check in result.checks if check.name == "binding")
    assert binding.outcome == "pass"
    swapped = replace(completed, gpu=())
    assert samples.judge(swapped).code == "gpu_evidence_hash"


def test_an_snp_guest_brings_its_hosts_certificates(caplog: pytest.LogCaptureFixture) -> None:
    machine = FakeSnp()
    table = cert_table({"VCEK": machine.vek(), "ASK": machine.issuer(), "ARK": machine.ark()})

    def snp(table: bytes) -> EvidenceBundle:
        tee = _fake_tdx(tee="snp", quote=lambda data: (machine.report(report_data=data), table))
        return make_bundle(tee, NONCE, samples.keyset(), AT)

    whole = snp(table + bytes(100))
    assert isinstance(whole.collateral, SnpEndorsements)
    assert (whole.collateral.vek, whole.collateral.crl) == (machine.vek(), None)
    assert fingerprints(whole.collateral.chain) == fingerprints(machine.chain())
    assert parse_bundle(whole.to_json()) == whole
    assert snp(b"").collateral is None
    assert snp(b"\x01" * 60).collateral is None
    assert "certificate table is broken" in caplog.text


def test_an_event_log_beyond_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "CCEL"
    path.write_bytes(bytes(1024 * 1024 + 1))
    with pytest.raises(TeeUnavailable, match="event log"):
        _fake_tdx(event_log_path=path).event_log()
    path.write_bytes(bytes(1024 * 1024))
    assert _fake_tdx(event_log_path=path).event_log() is not None


def test_a_driver_without_the_library_is_no_machine_without_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _touch(tmp_path, SEV_GUEST)
    monkeypatch.setattr(tee_module, "load_nvml", lambda: None)
    assert open_tee(tmp_path).gpus(bytes(32)) == ()

    _touch(tmp_path, "proc/driver/nvidia/version")
    with pytest.raises(TeeUnavailable) as caught:
        open_tee(tmp_path).gpus(bytes(32))
    assert "nvidia-ml-py" in caught.value.next_step
    assert open_tee(tmp_path, with_gpus=False).gpus(bytes(32)) == ()

    library = FakeNvml(devices=[(9, b"chain", lambda nonce: b"report" + nonce)])
    monkeypatch.setattr(tee_module, "load_nvml", lambda: library)
    (entry,) = open_tee(tmp_path).gpus(bytes(32))
    assert entry.report == b"report" + bytes(32)


def test_an_interface_of_another_provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / CONFIGFS).mkdir(parents=True)
    for provider, label in (("tdx_guest", "tdx"), ("sev_guest", "snp")):
        monkeypatch.setattr(ConfigfsTsm, "provider", lambda _, own=provider: own)
        assert open_tee(tmp_path).tee == label

    monkeypatch.setattr(ConfigfsTsm, "provider", lambda _: "arm_cca_guest")
    with pytest.raises(TeeUnavailable, match="arm_cca_guest"):
        open_tee(tmp_path)


def _collect(*arguments: str) -> Result:
    return CliRunner().invoke(attest, ["collect", *arguments])


@pytest.fixture
def _in_a_guest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "open_tee", lambda *, with_gpus: _fake_tdx())


@pytest.mark.usefixtures("_in_a_guest")
def test_the_command_makes_what_verify_takes(tmp_path: Path) -> None:
    collateral, keyset = tmp_path / "collateral.json", tmp_path / "keyset.json"
    quote, bundle = tmp_path / "quote", tmp_path / "bundle"
    collateral.write_text(json.dumps(FakeTee().collateral(AT).to_json_value()))
    keyset.write_text(json.dumps(samples.keyset()))

    bare = _collect("--nonce", NONCE.hex(), "--out", str(quote))
    bound = _collect("--nonce", NONCE.hex(), "--keyset", str(keyset), "--out", str(bundle))

    assert (bare.exit_code, bound.exit_code) == (0, 0)
    assert quote.read_bytes() == FakeTee().quote(NONCE + bytes(32))
    for path in (quote, bundle):
        judged = CliRunner().invoke(
            attest,
            [
                "verify",
                str(path),
                *("--collateral", str(collateral), "--policy", "development"),
                *("--at", "2026-12-01T12:00:00Z", "--nonce", NONCE.hex()),
            ],
        )
        assert judged.exit_code == 0, judged.output
    printed = _collect("--nonce", NONCE.hex(), "--keyset", str(keyset))
    assert parse_object(printed.stdout_bytes, what="x", max_bytes=2**20, max_depth=9)


@pytest.mark.usefixtures("_in_a_guest")
def test_inputs_of_the_command_that_cannot_be_used(tmp_path: Path) -> None:
    junk = tmp_path / "junk"
    junk.write_text("{}")

    assert _collect().exit_code == 2
    assert _collect("--nonce", "abcd").exit_code == 30
    assert _collect("--nonce", NONCE.hex(), "--keyset", str(junk)).exit_code == 30
    assert _collect("--nonce", NONCE.hex(), "--keyset", str(tmp_path / "none")).exit_code == 2
    assert _collect("--nonce", NONCE.hex(), "--out", str(tmp_path / "no" / "x")).exit_code == 2


def test_a_machine_without_a_tee_says_so_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        command, "open_tee", lambda *, with_gpus: open_tee(tmp_path, with_gpus=with_gpus)
    )

    result = _collect("--nonce", NONCE.hex())

    assert result.exit_code == 20
    assert result.output.startswith("tee_unavailable: this machine offers no supported TEE")
    assert "next: run inside a TDX or SEV-SNP guest" in result.output

"""Which TEE do worker and gateway attest with, and what do they say when there is none?"""

import functools
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from attestation import collect
from attestation.collect.configfs import ConfigfsTsm
from attestation.collect.detect import CONFIGFS, SEV_GUEST
from attestation.collect.tee import GuestTee
from attestation.evidence import QuotingTee
from attestation.fake import FakeTee
from attestation.keyset import parse_keyset
from attestation.model import GpuEntry, Nonce, parse_bundle
from gateway.problems import GatewayError
from gateway.tls import ensure_certificates
from gateway.wiring import build_gateway_app
from gateway.worker.attester import AttestedFacts, Attester, open_tee
from tests.attestation.collect.kernel import FakeKernel
from tests.gateway.support import make_config
from tests.support.patience import PATIENCE_S

AT = datetime(2026, 12, 1, 12, tzinfo=UTC)
NONCE = Nonce(bytes(32))
FACTS = AttestedFacts(replica="worker-0", mode="terminate", policy_sha256="44" * 32)


def _no_gpus(_: bytes) -> tuple[GpuEntry, ...]:
    return ()


def guest_without_collateral() -> GuestTee:
    """As a TDX guest: a quote and nothing beside it; FakeTee's, labelled as what it is."""
    return GuestTee(
        tee="fake-tdx",
        quote=lambda data: (FakeTee().quote(data), b""),
        gpus=_no_gpus,
        event_log_path=Path("/nonexistent"),
    )


def no_guest() -> QuotingTee:
    raise collect.TeeUnavailable("there is none", next_step="buy one")


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeKernel]:
    """configfs-tsm of a TDX guest below ``tmp_path``."""
    playing = FakeKernel(base=tmp_path / CONFIGFS, quote=FakeTee().quote)
    monkeypatch.setattr(
        collect.tee, "ConfigfsTsm", functools.partial(ConfigfsTsm, files=playing.files())
    )
    yield playing
    for thread in playing.threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def attester(tee: QuotingTee) -> Attester:
    return Attester(tee=tee, facts=lambda: FACTS, utc_now=lambda: AT)


@pytest.mark.parametrize("allows_simulated", [False, True])
def test_auto_takes_the_machines_own_tee_first(
    tmp_path: Path, kernel: FakeKernel, caplog: pytest.LogCaptureFixture, allows_simulated: bool
) -> None:
    tee = open_tee(
        "auto",
        allows_simulated=allows_simulated,
        role="worker",
        open_guest=lambda: collect.open_tee(tmp_path, with_gpus=False),
    )

    bundle = parse_bundle(attester(tee).bundle(NONCE))

    assert (bundle.tee, bundle.collateral) == ("tdx", None)
    assert [name for name, _ in kernel.written] == ["inblob"]
    assert bundle.quote == FakeTee().quote(kernel.written[0][1])
    assert "SIMULATED" not in caplog.text


def test_auto_falls_back_where_the_policy_allows_it_and_says_so_loudly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tee = open_tee("auto", allows_simulated=True, role="worker", open_guest=no_guest)

    assert isinstance(tee, FakeTee)
    assert "THE TEE IS SIMULATED: nothing protects this worker" in caplog.text
    assert "there is none (next: buy one)" in caplog.text
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_auto_without_a_tee_says_why_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "sys/module/kvm_intel").mkdir(parents=True)
    with pytest.raises(GatewayError) as caught:
        open_tee(
            "auto",
            allows_simulated=False,
            role="worker",
            open_guest=lambda: collect.open_tee(tmp_path),
        )
    assert caught.value.code == "tee_unavailable"
    assert "this machine offers no supported TEE" in caught.value.message
    assert "next: this is a host" in caught.value.message


def test_fake_asks_no_device(caplog: pytest.LogCaptureFixture) -> None:
    def asked() -> QuotingTee:
        raise AssertionError("a device was asked")

    tee = open_tee("fake", allows_simulated=False, role="worker", open_guest=asked)
    assert isinstance(tee, FakeTee)
    assert "SIMULATED" in caplog.text


def test_a_device_that_stops_answering_is_an_error_with_a_code(tmp_path: Path) -> None:
    device = tmp_path / SEV_GUEST
    device.parent.mkdir()
    device.touch()  # a file, which knows no ioctl
    tee = collect.open_tee(tmp_path, with_gpus=False)
    with pytest.raises(GatewayError) as caught:
        attester(tee).bundle(NONCE)
    assert caught.value.code == "tee_unavailable"
    assert "(next: " in caught.value.message


@pytest.mark.parametrize("policy", ["production", "development"])
def test_the_gateway_attests_itself_with_the_machines_tee(tmp_path: Path, policy: str) -> None:
    config = make_config(tmp_path, policy=policy, worker__tee="auto")
    config.paths.tls_dir.mkdir()
    ensure_certificates(config.paths, ("localhost",), at=datetime.now(UTC))  # noqa: TID251

    own = build_gateway_app(config, open_guest=guest_without_collateral).services.attester
    fallen_back = build_gateway_app(config, open_guest=no_guest).services.attester

    assert own is not None
    bundle = parse_bundle(own.bundle(NONCE))
    assert (bundle.tee, bundle.collateral) == ("fake-tdx", None)
    hosts = [key.host for key in parse_keyset(bundle.keyset).tls]
    assert hosts == ["localhost", "127.0.0.1"]
    if policy == "production":
        assert fallen_back is None
    else:
        assert fallen_back is not None
        assert isinstance(fallen_back.tee, FakeTee)

"""What does the gateway fetch for a worker that brings a quote alone, and what if it cannot?"""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

import pytest
from cryptography.x509 import ocsp

from attestation.anchors import TrustAnchors, load_anchors
from attestation.fake import FakeTee
from attestation.fake.pki import FakePki
from attestation.fetch.config import DEFAULT_URLS, FetchConfig
from attestation.fetch.errors import FetchFailed
from attestation.model import EvidenceBundle
from attestation.snp.endorsements import SnpEndorsements
from attestation.tdx.endorsements import TdxCollateral
from gateway import collateral as collateral_module
from gateway.app import GatewayApp
from gateway.collateral import Completed, Completer, Roots, fetch_config, lacks_endorsements
from gateway.config import CollateralSettings, load_config
from gateway.worker_node import WorkerNode
from tests.attestation import samples
from tests.attestation.fetch import nvidia_services
from tests.attestation.fetch.service import FakeService, Reply
from tests.attestation.fetch.vendors import PCS_PATHS, FakePcs
from tests.attestation.nvidia.device import hopper
from tests.attestation.samples import AT
from tests.gateway.support import Stack, error_of, running_stack, wait_until
from tests.gateway.test_attester import guest_without_collateral
from tests.support import fake_snp
from tests.support.fake_snp import FakeSnp

LATER_NS = 10 * 10**9


def bare(tee: FakeTee | None = None) -> EvidenceBundle:
    """As a TDX worker sends it."""
    return replace(samples.evidence(tee), collateral=None)


def settings(*services: FakeService, **changes: Any) -> CollateralSettings:
    urls = tuple(service.url for service in services)
    own = dict.fromkeys(("pcs", "kds", "rim", "ocsp", "nras"), urls) if urls else {}
    return CollateralSettings(**{**own, **changes})


def completer(given: CollateralSettings, folder: Path, **changes: Any) -> Completer:
    members: dict[str, Any] = {
        "settings": given,
        "folder": folder,
        "anchors": load_anchors(),
        "ocsp_grace": timedelta(0),
        "monotonic_ns": time.monotonic_ns,
    }
    members |= changes
    roots = Roots(anchors=members.pop("anchors"), ocsp_grace=members.pop("ocsp_grace"))
    return Completer(**members, roots=lambda: roots)


def complete(source: Completer, bundle: EvidenceBundle, *, budget_ns: int = LATER_NS) -> Completed:
    async def run() -> Completed:
        end_ns = source.monotonic_ns() + budget_ns
        return await source.complete(bundle, bundle.to_json(), at=AT, end_ns=end_ns)

    return asyncio.run(run())


@pytest.fixture
def pcs() -> Iterator[FakeService]:
    """A PCCS: it has the root CRL as well."""
    routes: dict[str, Any] = dict(FakePcs().routes())
    routes["/sgx/certification/v4/rootcacrl"] = routes.pop(PCS_PATHS["root_crl"])
    with FakeService(routes) as running:
        yield running


@pytest.fixture
def _no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(*_: object, **__: object) -> NoReturn:
        raise AssertionError("a socket was opened")

    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, opened, raising=False)
    for name in ("create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, opened)


@pytest.mark.usefixtures("_no_sockets")
def test_evidence_that_brings_everything_costs_no_traffic_and_no_thread(tmp_path: Path) -> None:
    bundle = samples.evidence()
    before = set(threading.enumerate())

    assert complete(completer(settings(), tmp_path / "cache"), bundle) == Completed()

    assert set(threading.enumerate()) <= before
    assert not (tmp_path / "cache").exists()


@pytest.mark.usefixtures("_no_sockets")
def test_the_sockets_of_these_tests_are_watched(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="a socket was opened"):
        complete(completer(settings(), tmp_path), bare())


def test_a_root_that_is_not_pinned_causes_no_traffic(pcs: FakeService, tmp_path: Path) -> None:
    foreign = bare(FakeTee(pki=FakePki(seed=b"mine")))
    found = complete(completer(settings(pcs), tmp_path), foreign)
    assert found.refusal is not None
    assert (found.refusal.code, found.failure, pcs.calls) == ("untrusted_root", None, [])

    vendors_alone = load_anchors().of_kinds(frozenset({"vendor"}))
    found = complete(completer(settings(pcs), tmp_path, anchors=vendors_alone), bare())
    assert found.refusal is not None
    assert (found.refusal.code, pcs.calls) == ("untrusted_root", [])


def test_a_quote_is_completed_once_and_then_from_the_cache(
    pcs: FakeService, tmp_path: Path
) -> None:
    source = completer(settings(pcs), tmp_path)

    found = complete(source, bare())

    assert isinstance(found.cpu, TdxCollateral)
    assert (found.failure, found.refusal, len(pcs.calls)) == (None, None, 4)
    assert samples.judge(replace(bare(), collateral=found.cpu)).is_accepted
    assert complete(source, bare()) == found
    assert complete(completer(settings(offline=True), tmp_path), bare()) == found
    assert len(pcs.calls) == 4


@pytest.mark.usefixtures("_no_sockets")
def test_offline_opens_no_socket_and_is_no_verdict(tmp_path: Path) -> None:
    found = complete(completer(settings(offline=True), tmp_path), bare())
    assert isinstance(found.failure, FetchFailed)
    assert (found.failure.reason, found.refusal) == ("offline", None)


def test_an_snp_report_is_completed(tmp_path: Path) -> None:
    machine = FakeSnp()
    routes = {
        f"/vcek/v1/Genoa/{fake_snp.CHIP_ID.hex()}": Reply(content=machine.vek()),
        "/vcek/v1/Genoa/cert_chain": Reply(content=machine.chain()),
        "/vcek/v1/Genoa/crl": Reply(content=machine.crl()),
    }
    bundle = replace(bare(), tee="snp", quote=machine.report())
    with_chain = SnpEndorsements(vek=machine.vek(), chain=machine.chain(), crl=None)
    with FakeService(routes) as kds:
        source = completer(settings(kds), tmp_path, anchors=fake_snp.anchors(machine))
        found = complete(source, replace(bundle, collateral=with_chain))
        assert kds.paths == ["/vcek/v1/Genoa/crl"]
        assert complete(source, bundle) == found
    assert found.cpu == replace(with_chain, crl=machine.crl())
    assert not lacks_endorsements(replace(bundle, collateral=found.cpu))


@pytest.mark.parametrize(
    "bad", [Reply(status=500), Reply(status=404), Reply(content=b"<html>"), None]
)
def test_a_vendor_that_fails_or_lies_is_a_failure_and_no_refusal(
    pcs: FakeService, tmp_path: Path, bad: Reply | None
) -> None:
    lie = FakePcs(tee=FakeTee(pki=FakePki(seed=b"mine"))).tcb()
    pcs.routes[PCS_PATHS["tcb"]] = bad or lie
    found = complete(completer(settings(pcs), tmp_path), bare())
    assert found.failure is not None
    assert (found.cpu, found.refusal) == (None, None)


@pytest.mark.parametrize(
    ("is_revoked", "is_refused"), [(True, True), (False, False)], ids=["revoked", "unknown"]
)
def test_a_device_that_its_vendor_revoked_is_refused(
    pcs: FakeService, tmp_path: Path, *, is_revoked: bool, is_refused: bool
) -> None:
    """Signed by NVIDIA for our nonce, it is no lie on the way; any other wrong answer may be."""
    status = ocsp.OCSPCertStatus.REVOKED if is_revoked else ocsp.OCSPCertStatus.UNKNOWN
    responder = nvidia_services.OcspResponder(devices=(hopper(),), status=status)
    pcs.routes |= {**nvidia_services.rim_routes(), "/": responder}
    own = TrustAnchors(anchors=(*load_anchors().anchors, *nvidia_services.ANCHORS.anchors))
    bundle = replace(bare(), gpu=(nvidia_services.entry(hopper()),))

    found = complete(completer(settings(pcs), tmp_path, anchors=own), bundle)

    said = found.refusal if is_refused else found.failure
    assert said is not None
    assert said.code == ("certificate_revoked" if is_revoked else "crl_issuer")
    assert (found.refusal is None) is not is_refused


def test_a_late_answer_is_taken_within_the_grace(pcs: FakeService, tmp_path: Path) -> None:
    hour = timedelta(hours=1)
    responder = nvidia_services.OcspResponder(devices=(hopper(),), this_update=AT - 24 * hour)
    pcs.routes |= {**nvidia_services.rim_routes(), "/": responder}
    own = TrustAnchors(anchors=(*load_anchors().anchors, *nvidia_services.ANCHORS.anchors))
    bundle = replace(bare(), gpu=(nvidia_services.entry(hopper()),))

    def ask(grace: timedelta) -> Completed:
        source = completer(settings(pcs), tmp_path, anchors=own, ocsp_grace=grace)
        return complete(source, bundle)

    late, refused = ask(2 * hour), ask(hour)
    assert late.gpu is not None
    assert (late.failure, len(late.gpu.ocsp)) == (None, 3)
    assert refused.failure is not None
    assert refused.failure.code == "crl_expired"


def test_after_a_failure_nobody_is_asked_for_a_while(
    pcs: FakeService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collateral_module, "ATTEMPTS", 1)
    pcs.routes[PCS_PATHS["tcb"]] = [Reply(status=500), FakePcs().tcb()]
    now_s = 1000.0
    source = completer(settings(pcs), tmp_path, monotonic_ns=lambda: int(now_s * 1e9))
    first = complete(source, bare())
    assert (first.failure is not None, len(pcs.calls)) == (True, 1)

    now_s += collateral_module.PAUSE_S - 1
    again = complete(source, bare())
    assert (again.failure, len(pcs.calls)) == (first.failure, 1)

    now_s += 2
    assert complete(source, bare()).failure is None


def test_a_silent_vendor_takes_no_longer_than_there_is_time(
    pcs: FakeService, tmp_path: Path
) -> None:
    pcs.routes[PCS_PATHS["tcb"]] = Reply(content=b"x" * 6000, drip_s=0.01)
    started_s = time.monotonic()
    found = complete(completer(settings(pcs), tmp_path), bare(), budget_ns=10**9 // 2)
    assert time.monotonic() - started_s < 30
    assert isinstance(found.failure, FetchFailed)
    assert found.failure.reason == "timeout"


def test_a_ca_file_that_is_none_is_a_failure(tmp_path: Path, pcs: FakeService) -> None:
    given = settings(pcs, ca_file=tmp_path / "none.pem")
    found = complete(completer(given, tmp_path), bare())
    assert "no CA certificates" in str(found.failure)


def test_settings_reach_the_fetcher() -> None:
    assert fetch_config(CollateralSettings()).urls == FetchConfig().urls
    toml = {
        "gateway.collateral.pcs": ["https://pccs:8081"],
        "gateway.collateral.proxy": "http://127.0.0.1:3128",
        "gateway.collateral.ca_file": "/etc/own.pem",
        "gateway.collateral.offline": "true",
    }
    given = load_config(flags=toml, environ={"HOME": "/h"}).gateway.collateral
    config = fetch_config(given)
    assert config.urls["pcs"] == ("https://pccs:8081",)
    assert config.urls["root_crl"] == (
        "https://pccs:8081/sgx/certification/v4/rootcacrl",
        *DEFAULT_URLS["root_crl"],
    )
    assert config.urls["kds"] == DEFAULT_URLS["kds"]
    assert (config.proxy, config.ca_file) == ("http://127.0.0.1:3128", Path("/etc/own.pem"))
    assert given.offline


# -- a whole gateway and worker ------------------------------------------------------------


def live_routes(lifetime: timedelta = timedelta(days=20)) -> dict[str, Any]:
    """As of now: the stack's clock is the real one."""
    now = datetime.now(UTC).replace(microsecond=0)  # noqa: TID251 - as the processes do
    issued, end = now - timedelta(days=1), now + lifetime
    fake = FakePcs()
    return {
        PCS_PATHS["tcb"]: fake.tcb(issued, end),
        PCS_PATHS["qe"]: fake.qe(issued, end),
        PCS_PATHS["pck_crl"]: Reply(content=fake.tee.pki.pck_crl(issued, end)),
        "/sgx/certification/v4/rootcacrl": Reply(content=fake.tee.pki.root_crl(issued, end)),
    }


def bare_stack(tmp_path: Path, service: FakeService, **changes: Any) -> Any:
    flags = {"worker__tee": "auto", "gateway__collateral__pcs": (service.url,)}
    return running_stack(tmp_path, open_guest=guest_without_collateral, **{**flags, **changes})


def node_of(stack: Stack) -> WorkerNode:
    app: GatewayApp = stack.gateway.app
    (node,) = app.services.directory.nodes
    return node


def test_a_worker_that_brings_a_quote_alone_is_served(tmp_path: Path) -> None:
    with FakeService(live_routes()) as service, bare_stack(tmp_path, service) as stack:
        assert stack.chat().status_code == 200
        assert len(service.calls) == 4
        assert (stack.config.cache_dir / "collateral" / "objects").is_dir()


def test_a_worker_that_brings_everything_makes_the_gateway_ask_nobody(tmp_path: Path) -> None:
    with (
        FakeService(live_routes()) as service,
        running_stack(tmp_path, gateway__collateral__pcs=(service.url,)) as stack,
    ):
        assert stack.chat().status_code == 200
        assert service.calls == []
        assert not (stack.config.cache_dir / "collateral").exists()


def test_a_vendor_that_is_down_is_not_the_workers_fault(tmp_path: Path) -> None:
    with FakeService({}) as service, bare_stack(tmp_path, service, wait=False) as stack:
        wait_until(lambda: node_of(stack).num_failures > 0)
        ready = stack.client.get("/readyz").json()
        assert (ready["code"], ready["detail_code"]) == (
            "upstream_unavailable",
            "endorsement_missing",
        )
        assert error_of(stack.chat())["code"] == "upstream_unavailable"
        assert node_of(stack).machine.quarantine_code is None


def test_a_lease_outlives_a_vendor_that_fails(tmp_path: Path) -> None:
    with FakeService(live_routes()) as service, bare_stack(tmp_path, service) as stack:
        lease = node_of(stack).machine.lease
        service.routes.clear()
        for path in (stack.config.cache_dir / "collateral" / "objects").iterdir():
            path.unlink()  # as if it had run out

        app: GatewayApp = stack.gateway.app
        node = node_of(stack)
        assert stack.gateway.loop is not None
        stack.gateway.loop.call_soon_threadsafe(app.services.directory.failed, node)
        wait_until(lambda: node.failure_code == "endorsement_missing")
        assert node.machine.lease is lease
        assert stack.client.get("/readyz").status_code == 200
        (entry,) = stack.client.get("/v1/nodes").json()["data"]
        assert entry["reachable"] is True
        assert stack.chat().status_code == 200

"""Evidence that must not be believed: attacks 1 to 5, 12, 13, 15 and 16 of docs/threat-model.md.

The gateway's nonce and clock are those of the prepared Evidence, so that in each case one thing is
wrong and nothing else is. The proxy hands it over in the worker's place.
"""

import contextlib
import gzip
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

import gateway.wiring
from attestation.anchors import TrustAnchors, load_anchors
from attestation.binding import report_data
from attestation.evidence import make_bundle
from attestation.fake import FakeTee
from attestation.model import MAX_BUNDLE_BYTES, EvidenceBundle, GpuEntry
from attestation.policy import AppraisalPolicy
from gateway.attest import LiveAttestation
from tests.attestation import sessions
from tests.attestation.cases import CASES, Case
from tests.attestation.nvidia.device import GPU_ITEMS, FakeDevice, board_gpu, hopper, switch
from tests.attestation.samples import AT, NONCE, OTHER_NONCE, evidence, keyset
from tests.e2e.negatives.scene import Scene, scene
from tests.support.fake_snp import FakeSnp
from tests.vectors.nvidia_refs.pki import chain

MAX_JUDGING_S = 1.0
MAX_JUDGING_BYTES = 50 << 20
JSON = "application/json"
_OTHERWISE = {
    "gpu_evidence_hash",  # attack 4 has devices that can be parsed
    "endorsement_missing",  # what is missing is asked for, and until it is had there is no verdict
}
ON_THE_WIRE = [case for case in CASES if case.code not in _OTHERWISE]
HONEST_POLICY = 0x12_0137
SNP_DEBUG = 1 << 19  # [AMD 56860 table 10]
NO_EVIDENCE = (JSON, b"{}")
NO_ANSWER = ("worker_unreachable", "upstream_error")
MALFORMED = ("worker_quarantined", "format")


@contextlib.contextmanager
def prepared_scene(
    folder: Path,
    model: Path,
    *,
    anchors: TrustAnchors | None = None,
    policy: AppraisalPolicy | None = None,
    completer: Any = None,
) -> Iterator[Scene]:
    """Its gateway asks with NONCE at AT, and has not believed anything yet.

    After all that is done in it neither the prompt nor the key is anywhere.
    """
    make = gateway.wiring._attestation

    def attestation(*args: Any) -> LiveAttestation:
        fixed = replace(make(*args), rng=lambda _n: bytes(NONCE), utc_now=lambda: AT)
        if completer is not None:
            fixed = replace(fixed, completer=completer)
        if policy is not None:
            fixed = replace(fixed, trust=lambda: replace(make(*args).trust(), policy=policy))
        return fixed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gateway.wiring, "_attestation", attestation)
        patch.setattr(gateway.wiring, "load_anchors", lambda: anchors or load_anchors())
        replaced = {b"/attestation": NO_EVIDENCE}
        with scene(folder, model, wait=False, replaced=replaced) as made:
            yield made
            made.assert_no_secret()


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[Scene]:
    with prepared_scene(tmp_path_factory.mktemp("prepared"), tiny_model) as made:
        yield made


def all_anchors() -> TrustAnchors:
    """The fakes' roots count as vendors' here, that of the reference values too."""
    rim_root = chain()[-1].public_bytes(Encoding.DER)
    return sessions.all_anchors().with_foreign(rim_root, source="test")


@pytest.fixture(scope="module")
def equipped(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[Scene]:
    """The same, for workers with GPUs of a vendor that counts as one here."""
    folder, anchors = tmp_path_factory.mktemp("equipped"), all_anchors()
    with prepared_scene(folder, tiny_model, anchors=anchors, policy=sessions.relaxed()) as made:
        yield made


def offer(prepared: Scene, body: bytes, media_type: str = JSON) -> None:
    """The gateway judges `body` now; the first look may have begun before it was there."""
    prepared.running.proxy.replaced[b"/attestation"] = (media_type, body)
    prepared.running.reattest()
    prepared.begin()
    prepared.running.reattest()


def assert_quarantined(prepared: Scene, code: str) -> None:
    """No request goes anywhere, and each is told why."""
    answer = prepared.ask()
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    assert answer.json()["error"]["message"] == f"No worker passed attestation: {code}."
    prepared.assert_refused(answer, "upstream_verification_failed", detail=code)
    prepared.wait_for_event("worker_quarantined", worker="worker-0", code=code)
    prepared.assert_nothing_computed()
    prepared.assert_nothing_sealed()


@pytest.mark.parametrize("case", ON_THE_WIRE, ids=lambda case: case.change.replace(" ", "-"))
def test_evidence_with_one_fault(prepared: Scene, case: Case) -> None:
    """Attacks 3 (debug), 12 (TCB), 13 (collateral), 15 (chains)."""
    offer(prepared, case.make().to_json())
    assert_quarantined(prepared, case.code)


def test_evidence_of_an_earlier_challenge(prepared: Scene) -> None:
    """Attack 1: genuine in every other way."""
    offer(prepared, make_bundle(FakeTee(), OTHER_NONCE, keyset(), AT).to_json())
    assert_quarantined(prepared, "nonce_mismatch")


def _snp(**facts: Any) -> EvidenceBundle:
    """Of a machine that is genuine in all but these facts, signed by its own key."""
    honest = sessions.bundle(tee="snp")
    wanted = report_data(honest.statement.encode())
    return replace(honest, quote=FakeSnp().report(report_data=wanted, **facts))


class _DevtoolsGpu(FakeDevice):
    """The mode shows in what is measured."""

    @property
    def measurements(self) -> tuple[bytes, ...]:
        first, *others = super().measurements
        return (bytes(reversed(first)), *others)


def _gpu(device: FakeDevice) -> EvidenceBundle:
    return replace(sessions.bundle((sessions.gpu_entry(device),)), gpu_endorsements=sessions.rims())


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: _snp(policy=HONEST_POLICY | SNP_DEBUG), "debug_enabled"),
        (lambda: _snp(policy=HONEST_POLICY), "key_config_error"),
        (lambda: _gpu(_DevtoolsGpu(items=GPU_ITEMS)), "measurement_mismatch"),
        (lambda: _gpu(hopper()), "key_config_error"),
    ],
    ids=["snp", "snp-control", "devtools", "devtools-control"],
)
def test_machines_that_can_be_looked_into(
    equipped: Scene, make: Callable[[], EvidenceBundle], code: str
) -> None:
    """Attack 3. The controls end at their key: the worker has not the one that is named."""
    offer(equipped, make().to_json())
    assert_quarantined(equipped, code)


def test_gpus_of_another_host(equipped: Scene) -> None:
    """Attack 4: genuine GPUs, a genuine quote, and nothing that ties one to the other."""
    mine, theirs = sessions.gpu_entry(hopper(0)), sessions.gpu_entry(hopper(1))
    offer(equipped, replace(sessions.bundle((mine,)), gpu=(theirs,)).to_json())
    assert_quarantined(equipped, "gpu_evidence_hash")


def _board(num_gpus: int) -> tuple[GpuEntry, ...]:
    """Of eight GPUs and four switches, with some of the GPUs left out."""
    gpus = [sessions.gpu_entry(board_gpu(number)) for number in range(num_gpus)]
    switches = [replace(sessions.gpu_entry(switch(number)), arch="LS10") for number in range(4)]
    return (*gpus, *switches)


@pytest.mark.parametrize(
    ("gpus", "code"),
    [
        (lambda: (sessions.gpu_entry(nonce=sessions.DEVICE_NONCE[:31] + b"x"),), "nonce_mismatch"),
        (lambda: (sessions.gpu_entry(nonce=sessions.DEVICE_NONCE[:16]),), "format"),
        (lambda: _board(7), "topology"),
        (lambda: (sessions.gpu_entry(), sessions.gpu_entry()), "topology"),
        (lambda: _board(8), None),
    ],
    ids=["prefix", "short", "seven-of-eight", "twice", "control"],
)
def test_gpus_that_are_not_what_was_asked_for(
    equipped: Scene, gpus: Callable[[], tuple[GpuEntry, ...]], code: str | None
) -> None:
    """Attack 5."""
    offer(equipped, sessions.bundle(gpus()).to_json())
    # the control ends at its key: the worker has another than the prepared keyset names
    assert_quarantined(equipped, code or "key_config_error")


@pytest.mark.parametrize("nonce", ["AB" * 32, "ab" * 31 + "a", "ab" * 32 + "a", "zz" * 32, ""])
def test_a_nonce_of_another_shape(prepared: Scene, nonce: str) -> None:
    """Attack 2."""
    prepared.begin()
    with prepared.running.http(key="sk-starshade-nobody") as client:
        answer = client.get("/v1/attestation", params={"nonce": nonce})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "nonce_length")
    prepared.wait_for_event("request_refused", code="nonce_length", endpoint="/v1/attestation")
    prepared.assert_nothing_sealed()


def _deep() -> bytes:
    return b"[" * 10_000 + b"]" * 10_000


def _with_member(text: bytes) -> bytes:
    return b"{" + text + b"," + evidence().to_json()[1:]


@pytest.mark.parametrize(
    ("body", "media_type", "event"),
    [
        (lambda: b" " * (MAX_BUNDLE_BYTES + 1), JSON, NO_ANSWER),
        (lambda: b"{" + b" " * (100 << 20), JSON, NO_ANSWER),
        (_deep, JSON, MALFORMED),
        (lambda: _with_member(b'"tee":"fake-tdx"'), JSON, MALFORMED),
        (lambda: _with_member(b'"a":NaN'), JSON, MALFORMED),
        (lambda: gzip.compress(bytes(64 << 20), 9), f"{JSON}\r\nContent-Encoding: gzip", NO_ANSWER),
        (lambda: b"\x28\xb5\x2f\xfd" + bytes(99), f"{JSON}\r\nContent-Encoding: zstd", NO_ANSWER),
    ],
    ids=["too-large", "huge", "deep", "duplicate", "nan", "gzip-bomb", "zstd"],
)
def test_evidence_that_is_an_attack_on_its_reader(
    prepared: Scene, body: Callable[[], bytes], media_type: str, event: tuple[str, str]
) -> None:
    """Attack 16: refused, at once and in little memory."""
    offer(prepared, evidence(FakeTee()).to_json().replace(b"fake-tdx", b"fake-tdy"))
    made = body()
    prepared.running.proxy.replaced[b"/attestation"] = (media_type, made)
    started_s = time.process_time()  # a machine that is busy with others is as quick
    prepared.running.reattest()
    assert time.process_time() - started_s < MAX_JUDGING_S
    tracemalloc.start()
    try:
        prepared.running.reattest()
        assert tracemalloc.get_traced_memory()[1] < MAX_JUDGING_BYTES
    finally:
        tracemalloc.stop()
    answer = prepared.ask()
    assert answer.status_code == 503
    kind, code = event
    prepared.wait_for_event(kind, worker="worker-0", code=code)
    prepared.assert_nothing_computed()
    prepared.assert_nothing_sealed()


def test_the_same_evidence_without_a_fault_is_believed(tmp_path: Path, tiny_model: Path) -> None:
    """The control: it is not the preparation that is refused. What ends this lease is that the
    worker, asked for its models through the attested key, has another date than AT.
    """
    with prepared_scene(tmp_path, tiny_model) as made:
        genuine = made.running.worker_get("/attestation", nonce=bytes(NONCE).hex()).json()
        keyset_now = {**genuine["keyset"], "not_after": "2026-12-01T12:05:00Z"}
        bundle = make_bundle(FakeTee(), NONCE, keyset_now, AT)
        made.running.proxy.replaced[b"/attestation"] = (JSON, bundle.to_json())
        made.running.reattest()
        (node,) = made.running.gateway.app.services.directory.nodes
        assert node.failure_code == "date_outside_window"
        assert len(made.running.proxy.sealed_requests()) == 1

"""NVIDIA's RIMs and OCSP answers: for exactly these devices, with a nonce of ours, each once."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.x509 import ocsp

from attestation.errors import AttestationError
from attestation.fetch.endorser import Endorser
from attestation.fetch.errors import FetchFailed
from attestation.fetch.gpus import gpu_endorsements
from attestation.model import GpuEndorsements
from attestation.nvidia.rim import verify_rim
from tests.attestation.fetch.nvidia_services import (
    ANCHORS,
    BLACKWELL_ID,
    BLACKWELL_VBIOS_ID,
    DRIVER_ID,
    SWITCH_ID,
    VBIOS_ID,
    OcspResponder,
    entry,
    rim_answer,
    rim_routes,
)
from tests.attestation.fetch.service import FakeService, Reply
from tests.attestation.fetch.vendors import endorser
from tests.attestation.nvidia.device import AT, DevicePki, FakeDevice, blackwell, hopper, switch

_BLACKWELL = blackwell(project=b"G530\0")
_DEVICES = (hopper(), hopper(1), _BLACKWELL, switch())


@pytest.fixture
def responder() -> OcspResponder:
    return OcspResponder(devices=_DEVICES)


@pytest.fixture
def service(responder: OcspResponder) -> Iterator[FakeService]:
    with FakeService({**rim_routes(), "/": responder}) as running:
        yield running


def _get(
    source: Endorser, *devices: FakeDevice, grace: timedelta = timedelta(0)
) -> GpuEndorsements:
    drawn = iter(range(1000))
    try:
        return gpu_endorsements(
            source,
            [entry(device) for device in devices],
            anchors=ANCHORS,
            token_bytes=lambda size: next(drawn).to_bytes(size, "big"),
            ocsp_grace=grace,
        )
    finally:
        if source.fetcher is not None:
            source.fetcher.close()


def _versions(found: GpuEndorsements) -> set[tuple[str, str]]:
    rims = (verify_rim(rim, anchors=ANCHORS, at=AT) for rim in found.rims)
    return {(rim.kind, rim.version) for rim in rims}


def test_everything_for_one_gpu(service: FakeService, responder: OcspResponder) -> None:
    source = endorser(service, at=AT)
    found = _get(source, hopper())

    assert not source.failures
    assert _versions(found) == {("driver", "590.12"), ("vbios", "96.00.A5.00.01")}
    assert len(found.ocsp) == 3
    assert responder.nonces == [bytes([0] * 31 + [n]) for n in range(3)]
    assert {call.path for call in service.calls if call.method == "GET"} == {
        f"/v1/rim/{DRIVER_ID}",
        f"/v1/rim/{VBIOS_ID}",
    }


def test_what_devices_share_is_asked_for_once(service: FakeService) -> None:
    found = _get(endorser(service, at=AT), hopper(), hopper(1), hopper())

    assert len(found.rims) == 2
    assert len(found.ocsp) == 4  # a boot ROM certificate each, and two they share


def test_the_ids_of_blackwell_and_of_a_switch(service: FakeService) -> None:
    _get(endorser(service, at=AT), _BLACKWELL, switch())

    assert {f"/v1/rim/{rim_id}" for rim_id in (BLACKWELL_ID, BLACKWELL_VBIOS_ID, SWITCH_ID)} <= set(
        service.paths
    )


def test_offline_it_comes_from_the_cache(service: FakeService, tmp_path: Path) -> None:
    first = _get(endorser(service, at=AT, folder=tmp_path), hopper())

    assert _get(endorser(at=AT, folder=tmp_path), hopper()) == first

    empty = endorser(at=AT, folder=tmp_path / "empty")
    assert _get(empty, hopper()) == GpuEndorsements(rims=(), ocsp=())
    assert [err.code for err in empty.failures] == ["endorsement_missing"] * 2 + ["crl_missing"] * 3


def test_an_answer_ends_and_is_asked_for_again(
    service: FakeService, responder: OcspResponder, tmp_path: Path
) -> None:
    _get(endorser(service, at=AT, folder=tmp_path), hopper())
    service.calls.clear()
    later = AT + timedelta(hours=22)  # the answers' end
    responder.this_update = later - timedelta(minutes=1)

    source = endorser(service, at=later, folder=tmp_path)
    _get(source, hopper())

    assert service.paths == ["/"] * 3
    assert {item.origin for item in source.obtained if "OCSP" in item.what} == {"127.0.0.1"}


_HOUR = timedelta(hours=1)
_END = AT + 22 * _HOUR  # of the answers


@pytest.mark.parametrize("is_offline", [True, False])
@pytest.mark.parametrize(
    ("grace", "num_answers"), [(timedelta(0), 0), (_HOUR, 0), (_HOUR + timedelta(seconds=1), 3)]
)
def test_what_is_held_stands_in_for_its_grace_while_nobody_answers(
    service: FakeService, tmp_path: Path, grace: timedelta, num_answers: int, *, is_offline: bool
) -> None:
    held = _get(endorser(service, at=AT, folder=tmp_path), hopper())
    service.routes["/"] = Reply(status=404)

    source = endorser(*() if is_offline else (service,), at=_END + _HOUR, folder=tmp_path)
    found = _get(source, hopper(), grace=grace)

    assert found.ocsp == held.ocsp[:num_answers]
    assert [err.code for err in source.failures] == ["crl_missing"] * (3 - num_answers)
    notes = [item.note for item in source.obtained if "OCSP" in item.what]
    said = "not current" if is_offline else "not refreshed"
    assert [said in note for note in notes] == [True] * num_answers


def test_an_answer_that_comes_is_taken_and_not_one_that_is_held_and_late(
    service: FakeService, responder: OcspResponder, tmp_path: Path
) -> None:
    """Fresh, or late itself; one that is wrong is no reason to go by what is held."""
    held = _get(endorser(service, at=AT, folder=tmp_path), hopper())
    later = {"at": _END + _HOUR, "folder": tmp_path}

    responder.this_update += _HOUR  # ends within the grace as well
    come = _get(endorser(service, **later), hopper(), grace=2 * _HOUR)  # type: ignore[arg-type]
    assert len(come.ocsp) == 3
    assert not set(come.ocsp) & set(held.ocsp)

    responder.other_nonce = True
    with pytest.raises(AttestationError) as caught:
        _get(endorser(service, **later), hopper(), grace=2 * _HOUR)  # type: ignore[arg-type]
    assert caught.value.code == "nonce_mismatch"


def test_a_revocation_counts_whatever_else_is_held_or_said(
    service: FakeService, responder: OcspResponder, tmp_path: Path
) -> None:
    _get(endorser(service, at=AT, folder=tmp_path), hopper())
    good = OcspResponder(devices=_DEVICES)
    responder.status = ocsp.OCSPCertStatus.REVOKED

    with FakeService({**rim_routes(), "/": good}) as mirror:
        for sources in ((service,), (service, mirror)):
            source = endorser(*sources, at=AT, folder=tmp_path, is_refreshing=True)
            with pytest.raises(AttestationError) as caught:
                _get(source, hopper(), grace=_HOUR)
            assert caught.value.code == "certificate_revoked"


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"echoes_nonce": False}, "nonce_mismatch"),
        ({"other_nonce": True}, "nonce_mismatch"),
        ({"status": ocsp.OCSPCertStatus.REVOKED}, "certificate_revoked"),
        ({"status": ocsp.OCSPCertStatus.UNKNOWN}, "crl_issuer"),
        ({"this_update": AT - timedelta(days=2)}, "crl_expired"),
    ],
)
def test_answers_that_are_wrong_are_no_mere_gap(
    service: FakeService, responder: OcspResponder, wrong: dict[str, object], code: str
) -> None:
    for name, value in wrong.items():
        setattr(responder, name, value)

    with pytest.raises(AttestationError) as caught:
        _get(endorser(service, at=AT), hopper())

    assert caught.value.code == code


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(status=404), "not_found"),
        (Reply(status=500), "unreachable"),
        (Reply(content=b"<html>"), "content"),
        (rim_answer(DRIVER_ID, id_said=VBIOS_ID, version="590.12"), "content"),
    ],
)
def test_a_rim_that_is_not_there_is_a_gap_that_is_told(
    service: FakeService, reply: Reply, reason: str
) -> None:
    service.routes[f"/v1/rim/{DRIVER_ID}"] = reply
    source = endorser(service, at=AT)

    found = _get(source, hopper())

    assert _versions(found) == {("vbios", "96.00.A5.00.01")}
    assert [(err.code, err.reason) for err in source.failures] == [("endorsement_missing", reason)]
    assert DRIVER_ID in str(source.failures[0])


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"version": "590.13"}, "rim_version"),
        ({"version": "590.12", "product": "GB100"}, "rim_kind"),
        ({"version": "96.00.A5.00.01"}, "rim_kind"),
    ],
)
def test_the_rim_of_another_version_never_stands_in(
    service: FakeService, facts: dict[str, str], code: str
) -> None:
    service.routes[f"/v1/rim/{DRIVER_ID}"] = rim_answer(DRIVER_ID, **facts)

    with pytest.raises(AttestationError) as caught:
        _get(endorser(service, at=AT), hopper())

    assert caught.value.code == code


def test_a_mirror_has_what_the_service_has_not(service: FakeService) -> None:
    with FakeService() as empty:
        source = endorser(empty, service, at=AT)
        found = _get(source, hopper())

    assert (len(found.rims), len(found.ocsp), source.failures) == (2, 3, [])


def test_a_device_under_another_root_causes_no_traffic(service: FakeService) -> None:
    other = FakeDevice(pki=DevicePki(seed=b"mine"))

    with pytest.raises(AttestationError) as caught:
        _get(endorser(service, at=AT), other)

    assert caught.value.code == "untrusted_root"
    assert not service.calls


def test_the_responder_does_not_answer_about_strangers(service: FakeService) -> None:
    service.routes["/"] = OcspResponder(devices=())
    source = endorser(service, at=AT)
    _get(source, hopper())

    assert {(err.code, isinstance(err, FetchFailed)) for err in source.failures} == {
        ("crl_missing", True)
    }

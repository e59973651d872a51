"""What is cached, from which mirror, how fresh: Intel's collateral stands for any object."""

import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import NoReturn

import pytest

from attestation.errors import AttestationError
from attestation.fake import FakeTee
from attestation.fake.pki import FakePki
from attestation.fetch.endorser import Endorser
from attestation.fetch.errors import FetchFailed
from attestation.tdx.endorsements import TdxCollateral
from tests.attestation import samples
from tests.attestation.fetch.service import FakeService, Reply
from tests.attestation.fetch.vendors import (
    DAY,
    PCS,
    PCS_PATHS,
    FakePcs,
    endorser,
    get_collateral,
)
from tests.attestation.samples import AT


@pytest.fixture
def service() -> Iterator[FakeService]:
    with FakeService(PCS.routes()) as running:
        yield running


def _reason(source: Endorser) -> str:
    with pytest.raises(FetchFailed) as caught:
        get_collateral(source)
    return caught.value.reason


def test_a_second_time_nothing_is_asked_and_offline_nothing_can_be(
    service: FakeService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = get_collateral(endorser(service, folder=tmp_path))
    assert len(service.calls) == 4

    source = endorser(service, folder=tmp_path)
    assert get_collateral(source) == first
    assert len(service.calls) == 4
    assert [item.origin for item in source.obtained] == ["cache"] * 4

    monkeypatch.setattr(socket, "socket", _no_socket)
    monkeypatch.setattr(socket, "create_connection", _no_socket)
    monkeypatch.setattr(socket, "getaddrinfo", _no_socket)
    assert get_collateral(endorser(folder=tmp_path)) == first


def _no_socket(*_: object, **__: object) -> NoReturn:
    raise AssertionError("offline opened a socket")


@pytest.mark.parametrize("route", list(PCS_PATHS))
def test_a_mirror_is_asked_when_the_first_is_broken_or_lies(
    service: FakeService, tmp_path: Path, route: str
) -> None:
    forged = FakePcs(tee=FakeTee(pki=FakePki(seed=b"mine"))).routes()
    for bad in (Reply(status=404), Reply(content=b"?"), forged[PCS_PATHS[route]]):
        with FakeService(PCS.routes()) as first:
            first.routes[PCS_PATHS[route]] = bad
            source = endorser(first, service)
            collateral = get_collateral(source)
        assert samples.judge(replace(samples.evidence(), collateral=collateral)).is_accepted


@pytest.mark.parametrize(
    ("route", "code"),
    [
        ("tcb", "untrusted_root"),
        ("qe", "untrusted_root"),
        ("pck_crl", "crl_signature"),
        ("root_crl", "crl_signature"),
    ],
)
def test_a_lie_alone_is_named_and_not_kept(
    service: FakeService, tmp_path: Path, route: str, code: str
) -> None:
    forged = FakePcs(tee=FakeTee(pki=FakePki(seed=b"mine"))).routes()
    service.routes[PCS_PATHS[route]] = forged[PCS_PATHS[route]]

    with pytest.raises(AttestationError) as caught:
        get_collateral(endorser(service, folder=tmp_path))
    assert caught.value.code == code

    service.routes = dict(PCS.routes())
    service.calls.clear()
    get_collateral(endorser(service, folder=tmp_path))
    assert PCS_PATHS[route] in service.paths


def _expired(service: FakeService, *, end: datetime) -> None:
    service.routes[PCS_PATHS["tcb"]] = PCS.tcb(AT - 40 * DAY, end)


def test_what_is_not_current_is_returned_and_not_kept(service: FakeService, tmp_path: Path) -> None:
    _expired(service, end=AT)
    source = endorser(service, folder=tmp_path)

    result = samples.judge(replace(samples.evidence(), collateral=get_collateral(source)))

    assert result.code == "collateral_expired"
    assert "not current" in next(i.note for i in source.obtained if i.what == "TCB info")
    assert _reason(endorser(folder=tmp_path)) == "offline"


def test_a_current_mirror_is_better_than_an_expired_first(service: FakeService) -> None:
    with FakeService(PCS.routes()) as first:
        _expired(first, end=AT)
        collateral = get_collateral(endorser(first, service))

    assert samples.judge(replace(samples.evidence(), collateral=collateral)).is_accepted


def test_an_expired_object_in_the_cache_is_fetched_again(
    service: FakeService, tmp_path: Path
) -> None:
    get_collateral(endorser(service, folder=tmp_path))
    later = AT + 25 * DAY
    service.routes[PCS_PATHS["tcb"]] = PCS.tcb(later - DAY, later + DAY)
    service.routes[PCS_PATHS["qe"]] = PCS.qe(later - DAY, later + DAY)
    pki = PCS.tee.pki
    service.routes[PCS_PATHS["pck_crl"]] = Reply(content=pki.pck_crl(later - DAY, later + DAY))
    service.calls.clear()

    collateral = get_collateral(endorser(service, folder=tmp_path, at=later))

    assert json.loads(collateral.tcb_info)["issueDate"] == f"{later - DAY:%Y-%m-%dT%H:%M:%SZ}"
    assert PCS_PATHS["tcb"] in service.paths


def test_offline_an_expired_object_is_said_to_be_expired(
    service: FakeService, tmp_path: Path
) -> None:
    get_collateral(endorser(service, folder=tmp_path))
    later = AT + 25 * DAY

    bundle = replace(
        samples.evidence(), collateral=get_collateral(endorser(folder=tmp_path, at=later))
    )

    keyset_is_old_too = samples.judge(bundle, at=later)
    assert keyset_is_old_too.code == "collateral_expired"


@pytest.mark.parametrize("route", ["tcb", "qe", "pck_crl", "root_crl"])
def test_a_mirror_cannot_take_the_cache_back(
    service: FakeService, tmp_path: Path, route: str
) -> None:
    get_collateral(endorser(service, folder=tmp_path))
    issued, end = AT - 2 * DAY, AT + 25 * DAY
    pki = PCS.tee.pki
    service.routes[PCS_PATHS[route]] = {
        "tcb": PCS.tcb(issued, end),
        "qe": PCS.qe(issued, end),
        "pck_crl": Reply(content=pki.pck_crl(issued, end)),
        "root_crl": Reply(content=pki.root_crl(issued, end)),
    }[route]

    source = endorser(service, folder=tmp_path, is_refreshing=True)
    collateral = get_collateral(source)  # what is held is current, so it is used
    notes = [item.note for item in source.obtained if "older than what was seen" in item.note]
    assert len(notes) == 1
    assert samples.judge(replace(samples.evidence(), collateral=collateral)).is_accepted

    for path in (tmp_path / "objects").iterdir():
        path.unlink()
    assert _reason(endorser(service, folder=tmp_path)) == "rollback"


def test_a_lower_evaluation_number_is_a_step_back_at_any_date(
    service: FakeService, tmp_path: Path
) -> None:
    get_collateral(endorser(service, folder=tmp_path))
    text = json.loads(PCS.tee.platform.tcb_info(AT, AT + 25 * DAY))
    text["tcbEvaluationDataNumber"] -= 1
    service.routes[PCS_PATHS["tcb"]] = PCS.signed("tcbInfo", json.dumps(text))
    for path in (tmp_path / "objects").iterdir():
        path.unlink()

    assert _reason(endorser(service, folder=tmp_path)) == "rollback"


def test_news_are_looked_for_once_a_day_and_a_broken_service_costs_nothing(
    service: FakeService, tmp_path: Path
) -> None:
    get_collateral(endorser(service, folder=tmp_path))
    service.calls.clear()
    almost = timedelta(hours=23, minutes=59)
    get_collateral(endorser(service, folder=tmp_path, at=AT + almost))
    assert not service.calls

    service.routes.clear()
    source = endorser(service, folder=tmp_path, at=AT + DAY)
    get_collateral(source)
    assert len(service.calls) == 4
    assert all("not refreshed" in item.note for item in source.obtained)

    service.routes = dict(PCS.routes())
    service.calls.clear()
    source = endorser(service, folder=tmp_path, now=AT - DAY)  # the clock went back
    get_collateral(source)
    assert [item.origin for item in source.obtained] == ["127.0.0.1"] * 4


def test_damage_in_the_cache_is_fetched_over(service: FakeService, tmp_path: Path) -> None:
    first = get_collateral(endorser(service, folder=tmp_path))
    for path in (tmp_path / "objects").iterdir():
        path.write_bytes(path.read_bytes()[:-1])

    assert get_collateral(endorser(service, folder=tmp_path)) == first
    assert len(service.calls) == 8


def test_eight_threads_fetch_once(service: FakeService, tmp_path: Path) -> None:
    found: list[TdxCollateral] = []
    threads = [
        threading.Thread(
            target=lambda: found.append(get_collateral(endorser(service, folder=tmp_path)))
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(found) == 8
    assert sorted(service.paths) == sorted(PCS_PATHS.values())

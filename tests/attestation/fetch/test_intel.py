"""Intel's collateral: cut out as it was signed, cached once verified, never older than before."""

import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

import pytest

from attestation.anchors import load_anchors
from attestation.checks import CheckLog
from attestation.errors import AttestationError, MalformedEvidence
from attestation.fake import FakeTee
from attestation.fake.pki import FakePki
from attestation.fetch.endorser import Endorser
from attestation.fetch.errors import FetchFailed
from attestation.fetch.http import Answer
from attestation.fetch.intel import tdx_collateral
from attestation.fetch.pcs import SignedText, parse_signed
from attestation.tdx.endorsements import TdxCollateral, parse_collateral
from attestation.tdx.verifier import TdxVerifier
from tests.attestation import samples
from tests.attestation.fetch.service import FakeService, Reply
from tests.attestation.fetch.vendors import DAY, PCS_PATHS, FakePcs, endorser
from tests.attestation.samples import AT
from tests.support.resources import vectors_dir

_PCS = FakePcs()
_QUOTE = FakeTee().quote(bytes(64))
_ANCHORS = load_anchors()


@pytest.fixture
def service() -> Iterator[FakeService]:
    with FakeService(_PCS.routes()) as running:
        yield running


def _get(source: Endorser, quote: bytes = _QUOTE) -> TdxCollateral:
    try:
        return tdx_collateral(source, quote, anchors=_ANCHORS)
    finally:
        if source.fetcher is not None:
            source.fetcher.close()


def _failure(source: Endorser, quote: bytes = _QUOTE) -> AttestationError:
    with pytest.raises(AttestationError) as caught:
        _get(source, quote)
    return caught.value


def _reason(source: Endorser) -> str:
    error = _failure(source)
    assert isinstance(error, FetchFailed), error
    return error.reason


def test_fetched_collateral_is_what_the_quote_is_accepted_with(service: FakeService) -> None:
    collateral = _get(endorser(service))

    bundle = replace(samples.evidence(), collateral=collateral)
    assert samples.judge(bundle).is_accepted
    asked = {call.path: call.params for call in service.calls}
    fmspc = FakeTee().platform.fmspc.hex()
    assert asked[PCS_PATHS["tcb"]] == {"fmspc": fmspc, "update": "standard"}
    assert asked[PCS_PATHS["qe"]] == {"update": "standard"}
    assert asked[PCS_PATHS["pck_crl"]] == {"ca": "platform", "encoding": "der"}


@pytest.mark.parametrize(
    ("settings", "params"),
    [
        ({"tcb_update": "early"}, {"update": "early"}),
        (
            {"tcb_update": "early", "tcb_evaluation_data_number": 17},
            {"tcbEvaluationDataNumber": "17"},
        ),
    ],
)
def test_editions_are_asked_for_and_kept_apart(
    service: FakeService, tmp_path: Path, settings: dict[str, Any], params: dict[str, str]
) -> None:
    _get(endorser(service, folder=tmp_path))
    service.calls.clear()

    _get(endorser(service, folder=tmp_path, **settings))

    assert service.paths == [PCS_PATHS["tcb"], PCS_PATHS["qe"]]
    assert service.calls[1].params == params


def test_a_second_time_nothing_is_asked_and_offline_nothing_can_be(
    service: FakeService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = _get(endorser(service, folder=tmp_path))
    assert len(service.calls) == 4

    source = endorser(service, folder=tmp_path)
    assert _get(source) == first
    assert len(service.calls) == 4
    assert [item.origin for item in source.obtained] == ["cache"] * 4

    monkeypatch.setattr(socket, "socket", _no_socket)
    monkeypatch.setattr(socket, "create_connection", _no_socket)
    monkeypatch.setattr(socket, "getaddrinfo", _no_socket)
    assert _get(endorser(folder=tmp_path)) == first


def _no_socket(*_: object, **__: object) -> NoReturn:
    raise AssertionError("offline opened a socket")


def test_offline_with_an_empty_cache_is_missing(tmp_path: Path) -> None:
    for folder in (tmp_path, None):
        error = _failure(endorser(folder=folder))
        assert isinstance(error, FetchFailed)
        assert (error.code, error.reason) == ("endorsement_missing", "offline")


@pytest.mark.parametrize(
    ("route", "code"),
    [
        ("tcb", "endorsement_missing"),
        ("qe", "endorsement_missing"),
        ("pck_crl", "crl_missing"),
        ("root_crl", "crl_missing"),
    ],
)
@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(status=404), "not_found"),
        (Reply(status=500), "unreachable"),
        (Reply(status=403), "refused"),
        (Reply(content=b"<html>log in to the network</html>"), "content"),
        (Reply(content=b""), "content"),
        (Reply(content=b"x" * (2 * 1024 * 1024)), "too_large"),
    ],
)
def test_what_an_answer_may_be_instead(
    service: FakeService, route: str, code: str, reply: Reply, reason: str
) -> None:
    service.routes[PCS_PATHS[route]] = reply

    error = _failure(endorser(service))

    assert isinstance(error, FetchFailed)
    assert (error.code, error.reason) == (code, reason)


@pytest.mark.parametrize("route", list(PCS_PATHS))
def test_a_mirror_is_asked_when_the_first_is_broken_or_lies(
    service: FakeService, tmp_path: Path, route: str
) -> None:
    forged = FakePcs(tee=FakeTee(pki=FakePki(seed=b"mine"))).routes()
    for bad in (Reply(status=404), Reply(content=b"?"), forged[PCS_PATHS[route]]):
        with FakeService(_PCS.routes()) as first:
            first.routes[PCS_PATHS[route]] = bad
            source = endorser(first, service)
            collateral = _get(source)
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

    assert _failure(endorser(service, folder=tmp_path)).code == code

    service.routes = dict(_PCS.routes())
    service.calls.clear()
    _get(endorser(service, folder=tmp_path))
    assert PCS_PATHS[route] in service.paths


def test_tcb_info_of_another_platform_is_not_what_was_asked_for(service: FakeService) -> None:
    other = FakeTee(platform=replace(FakeTee().platform, fmspc=bytes(6)))
    service.routes[PCS_PATHS["tcb"]] = FakePcs(tee=other).tcb()

    assert _failure(endorser(service)).code == "fmspc_mismatch"


def test_a_forged_quote_causes_no_traffic(service: FakeService) -> None:
    forged = FakeTee(pki=FakePki(seed=b"mine")).quote(bytes(64))

    assert _failure(endorser(service), forged).code == "untrusted_root"
    assert _failure(endorser(service), _QUOTE[:700]).code == "format"
    assert not service.calls


def _expired(service: FakeService, *, end: datetime) -> None:
    service.routes[PCS_PATHS["tcb"]] = _PCS.tcb(AT - 40 * DAY, end)


def test_what_is_not_current_is_returned_and_not_kept(service: FakeService, tmp_path: Path) -> None:
    _expired(service, end=AT)
    source = endorser(service, folder=tmp_path)

    result = samples.judge(replace(samples.evidence(), collateral=_get(source)))

    assert result.code == "collateral_expired"
    assert "not current" in next(i.note for i in source.obtained if i.what == "TCB info")
    assert _reason(endorser(folder=tmp_path)) == "offline"


def test_a_current_mirror_is_better_than_an_expired_first(service: FakeService) -> None:
    with FakeService(_PCS.routes()) as first:
        _expired(first, end=AT)
        collateral = _get(endorser(first, service))

    assert samples.judge(replace(samples.evidence(), collateral=collateral)).is_accepted


def test_an_expired_object_in_the_cache_is_fetched_again(
    service: FakeService, tmp_path: Path
) -> None:
    _get(endorser(service, folder=tmp_path))
    later = AT + 25 * DAY
    service.routes[PCS_PATHS["tcb"]] = _PCS.tcb(later - DAY, later + DAY)
    service.routes[PCS_PATHS["qe"]] = _PCS.qe(later - DAY, later + DAY)
    pki = _PCS.tee.pki
    service.routes[PCS_PATHS["pck_crl"]] = Reply(content=pki.pck_crl(later - DAY, later + DAY))
    service.calls.clear()

    collateral = _get(endorser(service, folder=tmp_path, at=later))

    assert json.loads(collateral.tcb_info)["issueDate"] == f"{later - DAY:%Y-%m-%dT%H:%M:%SZ}"
    assert PCS_PATHS["tcb"] in service.paths


def test_offline_an_expired_object_is_said_to_be_expired(
    service: FakeService, tmp_path: Path
) -> None:
    _get(endorser(service, folder=tmp_path))
    later = AT + 25 * DAY

    bundle = replace(samples.evidence(), collateral=_get(endorser(folder=tmp_path, at=later)))

    keyset_is_old_too = samples.judge(bundle, at=later)
    assert keyset_is_old_too.code == "collateral_expired"


@pytest.mark.parametrize("route", ["tcb", "qe", "pck_crl", "root_crl"])
def test_a_mirror_cannot_take_the_cache_back(
    service: FakeService, tmp_path: Path, route: str
) -> None:
    _get(endorser(service, folder=tmp_path))
    issued, end = AT - 2 * DAY, AT + 25 * DAY
    pki = _PCS.tee.pki
    service.routes[PCS_PATHS[route]] = {
        "tcb": _PCS.tcb(issued, end),
        "qe": _PCS.qe(issued, end),
        "pck_crl": Reply(content=pki.pck_crl(issued, end)),
        "root_crl": Reply(content=pki.root_crl(issued, end)),
    }[route]

    source = endorser(service, folder=tmp_path, is_refreshing=True)
    collateral = _get(source)  # what is held is current, so it is used
    notes = [item.note for item in source.obtained if "older than what was seen" in item.note]
    assert len(notes) == 1
    assert samples.judge(replace(samples.evidence(), collateral=collateral)).is_accepted

    for path in (tmp_path / "objects").iterdir():
        path.unlink()
    assert _reason(endorser(service, folder=tmp_path)) == "rollback"


def test_a_lower_evaluation_number_is_a_step_back_at_any_date(
    service: FakeService, tmp_path: Path
) -> None:
    _get(endorser(service, folder=tmp_path))
    text = json.loads(_PCS.tee.platform.tcb_info(AT, AT + 25 * DAY))
    text["tcbEvaluationDataNumber"] -= 1
    service.routes[PCS_PATHS["tcb"]] = _PCS.signed("tcbInfo", json.dumps(text))
    for path in (tmp_path / "objects").iterdir():
        path.unlink()

    assert _reason(endorser(service, folder=tmp_path)) == "rollback"


def test_news_are_looked_for_once_a_day_and_a_broken_service_costs_nothing(
    service: FakeService, tmp_path: Path
) -> None:
    _get(endorser(service, folder=tmp_path))
    service.calls.clear()
    almost = timedelta(hours=23, minutes=59)
    _get(endorser(service, folder=tmp_path, at=AT + almost))
    assert not service.calls

    service.routes.clear()
    source = endorser(service, folder=tmp_path, at=AT + DAY)
    _get(source)
    assert len(service.calls) == 4
    assert all("not refreshed" in item.note for item in source.obtained)

    service.routes = dict(_PCS.routes())
    service.calls.clear()
    source = endorser(service, folder=tmp_path, now=AT - DAY)  # the clock went back
    _get(source)
    assert [item.origin for item in source.obtained] == ["127.0.0.1"] * 4


def test_damage_in_the_cache_is_fetched_over(service: FakeService, tmp_path: Path) -> None:
    first = _get(endorser(service, folder=tmp_path))
    for path in (tmp_path / "objects").iterdir():
        path.write_bytes(path.read_bytes()[:-1])

    assert _get(endorser(service, folder=tmp_path)) == first
    assert len(service.calls) == 8


def test_eight_threads_fetch_once(service: FakeService, tmp_path: Path) -> None:
    found: list[TdxCollateral] = []
    threads = [
        threading.Thread(target=lambda: found.append(_get(endorser(service, folder=tmp_path))))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(found) == 8
    assert sorted(service.paths) == sorted(PCS_PATHS.values())


def test_a_pccs_sends_crls_in_hex(service: FakeService) -> None:
    for route in ("pck_crl", "root_crl"):
        reply = service.routes[PCS_PATHS[route]]
        assert isinstance(reply, Reply)
        service.routes[PCS_PATHS[route]] = Reply(content=reply.content.hex().encode() + b"\n")

    collateral = _get(endorser(service))

    assert samples.judge(replace(samples.evidence(), collateral=collateral)).is_accepted


def test_white_space_and_order_of_an_answer_are_kept_out_of_what_is_signed() -> None:
    signature = "ab" * 64
    inner = '{ "id" : "TDX",\n "note":"}\\"" }'
    headers = {"tcb-info-issuer-chain": "-----BEGIN%20CERTIFICATE-----%0A%2B"}
    for content in (
        f'{{"tcbInfo":{inner},"signature":"{signature}"}}',
        f' {{ "signature" : "{signature}" ,\n "tcbInfo" : {inner} }} ',
    ):
        found = parse_signed(Answer(content=content.encode(), headers=headers), "tcbInfo", "x")
        assert found.text == inner
        assert found.issuer_chain == "-----BEGIN CERTIFICATE-----\n+"
        assert SignedText.from_bytes(found.to_bytes()) == found


@pytest.mark.parametrize(
    "content",
    [
        b"[]",
        b'{"tcbInfo":{}}',
        b'{"tcbInfo":{},"signature":5}',
        b'{"tcbInfo":{},"signature":"zz"}',
        b'{"tcbInfo":{},"signature":"abcd"}',
        b'{"tcbInfo":{},"signature":"' + b"ab" * 64 + b'","more":1}',
        b'{"tcbInfo":{},"tcbInfo":{},"signature":"' + b"ab" * 64 + b'"}',
        b'{"tcbInf\\u006f":{},"signature":"' + b"ab" * 64 + b'"}',
        b'{"tcbInfo":{},"signature":"' + b"ab" * 64 + b'"} x',
    ],
)
def test_answers_that_are_not_whole(content: bytes) -> None:
    headers = {"tcb-info-issuer-chain": "x"}
    with pytest.raises(MalformedEvidence):
        parse_signed(Answer(content=content, headers=headers), "tcbInfo", "x")


@pytest.mark.parametrize("header", ["", "%FF", "x" * 40000])
def test_issuer_chains_that_cannot_be_used(header: str) -> None:
    content = b'{"tcbInfo":{},"signature":"' + b"ab" * 64 + b'"}'
    with pytest.raises(MalformedEvidence):
        parse_signed(
            Answer(content=content, headers={"tcb-info-issuer-chain": header}), "tcbInfo", "x"
        )


def test_a_real_answer_of_intel_verifies_from_the_wire_to_the_verdict(tmp_path: Path) -> None:
    """The recorded answers, served as they were, for a real quote of that platform."""
    folder = vectors_dir() / "attestation" / "tdx"
    raw = folder / "raw-pcs"
    header = (raw / "tcb-info-issuer-chain-header.txt").read_text().strip()
    at = datetime(2026, 6, 29, 12, tzinfo=UTC)
    routes = {
        PCS_PATHS["tcb"]: Reply(
            content=(raw / "tcb-90c06f-20260629.json").read_bytes(),
            headers={"TCB-Info-Issuer-Chain": header},
        ),
        PCS_PATHS["qe"]: Reply(
            content=(raw / "qe-identity-20260629.json").read_bytes(),
            headers={"SGX-Enclave-Identity-Issuer-Chain": header},
        ),
        PCS_PATHS["pck_crl"]: Reply(content=(raw / "pck-crl-platform-20260629.der").read_bytes()),
        PCS_PATHS["root_crl"]: Reply(content=(raw / "root-crl-20260226.der").read_bytes()),
    }
    quote = (folder / "quotes" / "dstack_report_v4.bin").read_bytes()
    with FakeService(routes) as service:
        source = endorser(service, folder=tmp_path, at=at)
        collateral = _get(source, quote)

    assert parse_collateral(json.dumps(collateral.to_json_value()).encode()) == collateral
    assert _get(endorser(folder=tmp_path, at=at), quote) == collateral
    claims = TdxVerifier(anchors=_ANCHORS).verify(quote, collateral, at=at, log=CheckLog())
    assert (claims.fmspc.hex(), claims.tcb.status) == ("90c06f000000", "UpToDate")
    assert claims.tcb_evaluation_data_number == 19
    assert {item.what for item in source.obtained} == {
        "TCB info",
        "QE identity",
        "PCK CRL",
        "root CRL",
    }

"""Intel's collateral: asked for by what the quote says, cut out as it was signed."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from attestation.anchors import load_anchors
from attestation.checks import CheckLog
from attestation.errors import AttestationError, MalformedEvidence
from attestation.fake import FakeTee
from attestation.fake.pki import FakePki
from attestation.fetch.endorser import Endorser
from attestation.fetch.errors import FetchFailed
from attestation.fetch.http import Answer
from attestation.fetch.pcs import SignedText, parse_signed
from attestation.tdx.endorsements import parse_collateral
from attestation.tdx.verifier import TdxVerifier
from tests.attestation import samples
from tests.attestation.fetch.service import FakeService, Reply
from tests.attestation.fetch.vendors import (
    PCS,
    PCS_PATHS,
    QUOTE,
    FakePcs,
    endorser,
    get_collateral,
)
from tests.support.resources import vectors_dir


@pytest.fixture
def service() -> Iterator[FakeService]:
    with FakeService(PCS.routes()) as running:
        yield running


def _failure(source: Endorser, quote: bytes = QUOTE) -> AttestationError:
    with pytest.raises(AttestationError) as caught:
        get_collateral(source, quote)
    return caught.value


def test_fetched_collateral_is_what_the_quote_is_accepted_with(service: FakeService) -> None:
    collateral = get_collateral(endorser(service))

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
    get_collateral(endorser(service, folder=tmp_path))
    service.calls.clear()

    get_collateral(endorser(service, folder=tmp_path, **settings))

    assert service.paths == [PCS_PATHS["tcb"], PCS_PATHS["qe"]]
    assert service.calls[1].params == params


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


def test_tcb_info_of_another_platform_is_not_what_was_asked_for(service: FakeService) -> None:
    other = FakeTee(platform=replace(FakeTee().platform, fmspc=bytes(6)))
    service.routes[PCS_PATHS["tcb"]] = FakePcs(tee=other).tcb()

    assert _failure(endorser(service)).code == "fmspc_mismatch"


def test_a_forged_quote_causes_no_traffic(service: FakeService) -> None:
    forged = FakeTee(pki=FakePki(seed=b"mine")).quote(bytes(64))

    assert _failure(endorser(service), forged).code == "untrusted_root"
    assert _failure(endorser(service), QUOTE[:700]).code == "format"
    assert not service.calls


def test_a_pccs_sends_crls_in_hex(service: FakeService) -> None:
    for route in ("pck_crl", "root_crl"):
        reply = service.routes[PCS_PATHS[route]]
        assert isinstance(reply, Reply)
        service.routes[PCS_PATHS[route]] = Reply(content=reply.content.hex().encode() + b"\n")

    collateral = get_collateral(endorser(service))

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
        collateral = get_collateral(source, quote)

    assert parse_collateral(json.dumps(collateral.to_json_value()).encode()) == collateral
    assert get_collateral(endorser(folder=tmp_path, at=at), quote) == collateral
    claims = TdxVerifier(anchors=load_anchors()).verify(quote, collateral, at=at, log=CheckLog())
    assert (claims.fmspc.hex(), claims.tcb.status) == ("90c06f000000", "UpToDate")
    assert claims.tcb_evaluation_data_number == 19
    assert {item.what for item in source.obtained} == {
        "TCB info",
        "QE identity",
        "PCK CRL",
        "root CRL",
    }

"""AMD's certificates: by chip and TCB, joined with their chain, and only what is AMD's."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from attestation.checks import CheckLog
from attestation.errors import AttestationError
from attestation.fetch.amd import snp_endorsements
from attestation.fetch.endorser import Endorser
from attestation.fetch.errors import FetchFailed
from attestation.snp.endorsements import SnpEndorsements
from attestation.snp.product import GENOA, MILAN, TURIN, ProductLine
from attestation.snp.verifier import SnpVerifier
from tests.attestation.fetch.service import FakeService, Reply
from tests.attestation.fetch.vendors import endorser
from tests.support import fake_snp
from tests.support.fake_snp import AT, CHIP_ID, FakeSnp

_PRODUCTS = {"Milan": MILAN, "Genoa": GENOA, "Turin": TURIN}
_ANCHORS = fake_snp.anchors(*(FakeSnp(product=product) for product in _PRODUCTS.values()))


def _routes(tee: FakeSnp) -> dict[str, Reply]:
    kind, product = tee.kind.lower(), tee.product
    chip = CHIP_ID[: product.hwid_bytes].hex()
    routes = {
        f"/{kind}/v1/{product.name}/cert_chain": Reply(content=tee.chain()),
        f"/{kind}/v1/{product.name}/crl": Reply(content=tee.crl()),
    }
    if tee.kind == "VCEK":
        routes[f"/vcek/v1/{product.name}/{chip}"] = Reply(content=tee.vek())
    return routes


@pytest.fixture
def service() -> Iterator[FakeService]:
    with FakeService(_routes(FakeSnp())) as running:
        yield running


def _get(
    source: Endorser, report: bytes, carried: SnpEndorsements | None = None
) -> SnpEndorsements:
    try:
        return snp_endorsements(source, report, anchors=_ANCHORS, carried=carried)
    finally:
        if source.fetcher is not None:
            source.fetcher.close()


def _failure(
    source: Endorser, report: bytes, carried: SnpEndorsements | None = None
) -> AttestationError:
    with pytest.raises(AttestationError) as caught:
        _get(source, report, carried)
    return caught.value


def _verify(report: bytes, endorsements: SnpEndorsements) -> bool:
    claims = SnpVerifier(anchors=_ANCHORS).verify(report, endorsements, at=AT, log=CheckLog())
    return claims.is_revocation_checked


@pytest.mark.parametrize(
    ("product", "params"),
    [
        (MILAN, {"blSPL": "10", "teeSPL": "01", "snpSPL": "27", "ucodeSPL": "84"}),
        (GENOA, {"blSPL": "10", "teeSPL": "01", "snpSPL": "27", "ucodeSPL": "84"}),
        (
            TURIN,
            {"blSPL": "10", "teeSPL": "01", "snpSPL": "27", "ucodeSPL": "84", "fmcSPL": "02"},
        ),
    ],
)
def test_a_vcek_is_asked_for_by_chip_and_reported_tcb(
    product: ProductLine, params: dict[str, str]
) -> None:
    tee = FakeSnp(product=product)
    report = tee.report(current_tcb=tee.tcb(snp=28))
    with FakeService(_routes(tee)) as service:
        endorsements = _get(endorser(service, at=AT), report)

    assert _verify(report, endorsements)
    (call,) = (c for c in service.calls if c.params)
    assert call.params == params
    assert call.path.endswith("/" + CHIP_ID[: product.hwid_bytes].hex())


def test_it_is_kept_by_chip_and_tcb(service: FakeService, tmp_path: Path) -> None:
    report = FakeSnp().report()
    first = _get(endorser(service, at=AT, folder=tmp_path), report)
    assert len(service.calls) == 3

    other_report = FakeSnp().report(report_data=bytes(64))
    assert _get(endorser(at=AT, folder=tmp_path), other_report) == first

    other_chip = FakeSnp().report(chip_id=bytes(range(2, 66)))
    other_tcb = FakeSnp().report(reported_tcb=FakeSnp().tcb(snp=28))
    for other in (other_chip, other_tcb):
        error = _failure(endorser(at=AT, folder=tmp_path), other)
        assert isinstance(error, FetchFailed)
        assert error.reason == "offline"


def test_an_old_report_is_looked_up_in_every_old_product_line(service: FakeService) -> None:
    report = FakeSnp().report(version=2, cpuid=bytes(3))

    endorsements = _get(endorser(service, at=AT), report)

    assert _verify(report, endorsements)
    assert [path.split("/")[3] for path in service.paths if CHIP_ID.hex() in path] == [
        "Milan",
        "Genoa",
    ]


def test_a_report_of_no_known_processor(service: FakeService) -> None:
    report = FakeSnp().report(cpuid=bytes([0x17, 1, 1]))

    assert _failure(endorser(service, at=AT), report).code == "unsupported_tee"
    assert not service.calls


def test_a_report_that_hides_its_chip(service: FakeService) -> None:
    error = _failure(endorser(service, at=AT), FakeSnp().report(chip_id=bytes(64)))

    assert isinstance(error, FetchFailed)
    assert (error.code, error.reason) == ("endorsement_missing", "unsuited")
    assert not service.calls


@pytest.mark.parametrize(
    ("other", "code"),
    [
        (FakeSnp(chip_id=bytes(range(2, 66))), "chain"),
        (FakeSnp(levels={**fake_snp.LEVELS, "snp": 26}), "chain"),
        (FakeSnp(signer_of_vek="other"), "chain_signature"),
        (FakeSnp(root_key="other", signer_of_issuer="other"), "untrusted_root"),
        (FakeSnp(kind="VLEK"), "chain_signature"),
    ],
)
def test_another_vcek_than_asked_for(
    service: FakeService, tmp_path: Path, other: FakeSnp, code: str
) -> None:
    chip = f"/vcek/v1/Genoa/{CHIP_ID.hex()}"
    service.routes[chip] = Reply(content=other.vek())
    if code == "untrusted_root":
        service.routes["/vcek/v1/Genoa/cert_chain"] = Reply(content=other.chain())

    assert _failure(endorser(service, at=AT, folder=tmp_path), FakeSnp().report()).code == code

    service.routes = dict(_routes(FakeSnp()))
    assert _verify(
        FakeSnp().report(),
        _get(endorser(service, at=AT, folder=tmp_path), FakeSnp().report()),
    )


@pytest.mark.parametrize(
    ("suffix", "reply", "reason"),
    [
        (CHIP_ID.hex(), Reply(status=404), "not_found"),
        (CHIP_ID.hex(), Reply(status=429), "unreachable"),
        (CHIP_ID.hex(), Reply(content=b"<html>"), "content"),
        (CHIP_ID.hex(), Reply(content=b"0" * 20000), "too_large"),
        ("cert_chain", Reply(content=b"<html>"), "content"),
        ("cert_chain", Reply(content=b"x" * 100000), "too_large"),
    ],
)
def test_answers_that_are_no_certificate(
    service: FakeService, suffix: str, reply: Reply, reason: str
) -> None:
    service.routes[f"/vcek/v1/Genoa/{suffix}"] = reply

    error = _failure(endorser(service, at=AT), FakeSnp().report())

    assert isinstance(error, FetchFailed)
    assert error.reason == reason
    assert CHIP_ID.hex() not in str(error)


def test_without_a_crl_the_rest_is_there_and_the_gap_is_told(service: FakeService) -> None:
    service.routes["/vcek/v1/Genoa/crl"] = Reply(status=503)
    source = endorser(service, at=AT)

    endorsements = _get(source, FakeSnp().report())

    assert endorsements.crl is None
    assert not _verify(FakeSnp().report(), endorsements)
    assert [(err.code, err.reason) for err in source.failures] == [("crl_missing", "unreachable")]


def test_a_crl_of_another_root_is_refused(service: FakeService) -> None:
    service.routes["/vcek/v1/Genoa/crl"] = Reply(content=FakeSnp().crl(signer="other"))

    assert _failure(endorser(service, at=AT), FakeSnp().report()).code == "crl_signature"


def test_a_crl_never_goes_back(service: FakeService, tmp_path: Path) -> None:
    newer = FakeSnp().crl(last_update=AT - timedelta(days=1))
    service.routes["/vcek/v1/Genoa/crl"] = [Reply(content=newer), Reply(content=FakeSnp().crl())]
    _get(endorser(service, at=AT, folder=tmp_path), FakeSnp().report())

    source = endorser(service, at=AT, folder=tmp_path, is_refreshing=True)
    assert _get(source, FakeSnp().report()).crl == newer
    assert any("older than what was seen" in item.note for item in source.obtained)


def test_a_vlek_comes_with_the_report_and_its_chain_from_amd(tmp_path: Path) -> None:
    tee = FakeSnp(kind="VLEK")
    carried = SnpEndorsements(vek=tee.vek(), chain=b"", crl=None)
    with FakeService(_routes(tee)) as service:
        endorsements = _get(endorser(service, at=AT, folder=tmp_path), tee.report(), carried)
        assert service.paths == ["/vlek/v1/Genoa/cert_chain", "/vlek/v1/Genoa/crl"]

        error = _failure(endorser(service, at=AT), tee.report())

    assert _verify(tee.report(), endorsements)
    assert isinstance(error, FetchFailed)
    assert error.reason == "unsuited"
    assert _get(endorser(at=AT, folder=tmp_path), tee.report(), carried) == endorsements


def test_what_came_along_is_not_asked_for(service: FakeService) -> None:
    tee = FakeSnp()
    carried = SnpEndorsements(vek=tee.vek(), chain=tee.chain(), crl=None)

    assert _get(endorser(service, at=AT), tee.report(), carried).vek == tee.vek()
    assert service.paths == ["/vcek/v1/Genoa/crl"]

    whole = replace(carried, crl=tee.crl())
    assert _get(endorser(service, at=AT), tee.report(), whole) is whole
    assert len(service.calls) == 1


def test_what_came_along_under_another_root_causes_no_traffic(service: FakeService) -> None:
    other = FakeSnp(root_key="other", signer_of_issuer="other")
    carried = SnpEndorsements(vek=other.vek(), chain=other.chain(), crl=None)

    error = _failure(endorser(service, at=AT), other.report(), carried)

    assert error.code == "untrusted_root"
    assert not service.calls

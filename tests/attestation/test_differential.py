"""dcap-qvl and this verifier say the same of every Intel quote at hand, but for the listed cases.

Compared are accept and reject, the merged TCB status and its advisories. dcap-qvl looks at no
policy, but always refuses debug, unsound TD attributes and a service TD, so all three are asked of
ours too. "Accepted" means that a quote is genuine and has a TCB level that is not revoked.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from attestation.anchors import Anchor, TrustAnchors, load_anchors
from attestation.checks import CheckLog
from attestation.errors import AttestationError
from attestation.fake.pki import FakePki, pem
from attestation.fake.platform import FakePlatform, _integer, _pair, _tlv, fake_digest
from attestation.tdx.cases import _collateral
from attestation.tdx.endorsements import TdxCollateral
from attestation.tdx.rules import DebugOff, NoServiceTd, TdAttributesSound
from attestation.tdx.verifier import TdxVerifier
from tests.attestation.samples import AT
from tests.attestation.tdx.td15 import RELAUNCHES
from tests.support.resources import vectors_dir

dcap_qvl = pytest.importorskip("dcap_qvl")

_INTEL_ROOT = "tdx/anchors/intel-sgx-root-ca.pem"
_REJECTED = "rejected"
_ALWAYS = (DebugOff(), TdAttributesSound(is_septve_disable_required=True), NoServiceTd())

_PCEID = "dcap-qvl does not compare the PCEID of certificate and TCB info; Intel's library does"
_GARBAGE = "dcap-qvl reads no byte after the declared end; ours refuses any that is not zero"
_NOW_TOO = "ours adds the advisories of the level that the platform is at now"
KNOWN_DIFFERENCES = {
    "tdx": {"neg-tdx-trailing-garbage": _GARBAGE},
    "tdx-synthetic": {"syn-pceid": _PCEID},
    "relaunch": {
        "hardening needed now": _NOW_TOO,
        "configuration needed now": _NOW_TOO,
        "configuration and hardening needed now": _NOW_TOO,
    },
}


@dataclass(frozen=True, kw_only=True)
class _Quote:
    name: str
    quote: bytes
    collateral: TdxCollateral
    root_der: bytes
    at: datetime


class _OraclePki(FakePki):
    """Its CRLs have the extensions that dcap-qvl insists on.  [RFC 5280 sec. 5.2.1, 5.2.3]"""

    def _crl(
        self,
        issuer: x509.Certificate,
        name: str,
        issued: datetime,
        next_update: datetime,
        revoked: Iterable[x509.Certificate],
    ) -> bytes:
        assert not list(revoked)
        key = self.key(name)
        crl = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(issuer.subject)
            .last_update(issued)
            .next_update(next_update)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False
            )
            .add_extension(x509.CRLNumber(1), critical=False)
            .sign(key, hashes.SHA256(), ecdsa_deterministic=True)
        )
        return crl.public_bytes(Encoding.DER)


class _OraclePlatform(FakePlatform):
    """Its certificate has the member CPUSVN too, which dcap-qvl insists on."""

    __slots__ = ()

    def sgx_extension(self) -> bytes:
        tcb = [_pair(2, i + 1, value=_integer(v)) for i, v in enumerate(self.component_svns)]
        tcb.append(_pair(2, 17, value=_integer(self.pce_svn)))
        tcb.append(_pair(2, 18, value=_tlv(0x04, bytes(self.component_svns))))
        return _tlv(
            0x30,
            _pair(1, value=_tlv(0x04, fake_digest("PPID")[:16]))
            + _pair(2, value=_tlv(0x30, b"".join(tcb)))
            + _pair(3, value=_tlv(0x04, self.pce_id))
            + _pair(4, value=_tlv(0x04, self.fmspc))
            + _pair(5, value=_tlv(0x0A, b"\0")),
        )


def _ours(case: _Quote) -> tuple[str, tuple[str, ...]]:
    anchor = Anchor(
        name="root",
        kind="vendor",
        family="dcap",
        sha256=hashlib.sha256(case.root_der).hexdigest(),
        source="test",
    )
    verifier = TdxVerifier(anchors=TrustAnchors(anchors=(anchor,)))
    try:
        claims = verifier.verify(case.quote, case.collateral, at=case.at, log=CheckLog())
        for rule in _ALWAYS:
            rule.require(claims)
    except AttestationError:
        return _REJECTED, ()
    if claims.tcb.status == "Revoked":
        return _REJECTED, ()
    return claims.tcb.status, claims.tcb.advisories


def _theirs(case: _Quote) -> tuple[str, tuple[str, ...]]:
    collateral = case.collateral
    theirs = dcap_qvl.QuoteCollateralV3(
        collateral.pck_crl_issuer_chain,
        collateral.root_ca_crl,
        collateral.pck_crl,
        collateral.tcb_info_issuer_chain,
        collateral.tcb_info,
        collateral.tcb_info_signature,
        collateral.qe_identity_issuer_chain,
        collateral.qe_identity,
        collateral.qe_identity_signature,
    )
    try:
        report = dcap_qvl.verify_with_root_ca(
            case.quote, theirs, case.root_der, int(case.at.timestamp())
        )
    except ValueError:
        return _REJECTED, ()
    return report.status, tuple(sorted(report.advisory_ids))


def _difference(case: _Quote) -> str | None:
    ours, theirs = _ours(case), _theirs(case)
    return None if ours == theirs else f"ours {ours}, theirs {theirs}"


def _published(folder: Path) -> Iterator[_Quote]:
    for file in (folder / name for name in ("manifest.json", "negative.json")):
        cases: list[dict[str, Any]] = []
        if file.is_file():
            cases = json.loads(file.read_bytes())["cases"]
        for case in cases:
            inputs = case["inputs"]
            root = inputs.get("root", "intel")
            try:
                collateral = _collateral(folder, inputs)
            except AttestationError:
                continue  # a collateral file that is none: nothing that both could be shown
            yield _Quote(
                name=case["id"],
                quote=(folder / inputs["quote"]).read_bytes(),
                collateral=collateral,
                root_der=_root(folder, root),
                at=datetime.fromisoformat(case["verify_at"]),
            )


def _root(folder: Path, root: str) -> bytes:
    if root != "intel":
        return (folder / root).read_bytes()
    certificate = x509.load_pem_x509_certificate((folder.parent / _INTEL_ROOT).read_bytes())
    return certificate.public_bytes(Encoding.DER)


@pytest.mark.parametrize(("folder", "num_cases"), [("tdx", 83), ("tdx-synthetic", 42)])
def test_published_quotes(folder: str, num_cases: int) -> None:
    cases = list(_published(vectors_dir() / "attestation" / folder))

    differences = {case.name: found for case in cases if (found := _difference(case))}

    assert differences.keys() == KNOWN_DIFFERENCES[folder].keys(), differences
    assert len(cases) == num_cases


def test_relaunch_advice() -> None:
    pki = _OraclePki()
    cases = []
    for case in RELAUNCHES:
        quote, collateral = case.evidence(pki, _OraclePlatform())
        chain = pem((pki.pck_ca, pki.root)).decode()
        cases.append(
            _Quote(
                name=case.name,
                quote=quote,
                collateral=replace(collateral, pck_crl_issuer_chain=chain),
                root_der=pki.root.public_bytes(Encoding.DER),
                at=AT,
            )
        )

    differences = {case.name: found for case in cases if (found := _difference(case))}

    assert differences.keys() == KNOWN_DIFFERENCES["relaunch"].keys(), differences
    assert all(_ours(case)[0] == _theirs(case)[0] for case in cases)
    assert {_theirs(case)[0] for case in cases} >= {"TDRelaunchAdvised", "UpToDate"}


def test_the_intel_root_of_the_comparison_is_the_pinned_one() -> None:
    digest = hashlib.sha256(_root(vectors_dir() / "attestation" / "tdx", "intel")).hexdigest()

    assert load_anchors().find("dcap", digest) is not None

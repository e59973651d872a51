"""AMD SEV-SNP: is this report genuine, from which chip and at which TCB?  [AMD 56860 sec. 7.3]

Appraisal in numbered steps; the first that fails ends it. Signatures, revocation and identity come
before dates, so that an expired but genuine VLEK is told apart from a forgery. Whether what the
report claims is good enough is AppraisalPolicy's question.
"""

from dataclasses import dataclass
from datetime import datetime

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from attestation.anchors import Anchor, TrustAnchors
from attestation.cache import VerifiedCache, once, once_chain
from attestation.checks import CheckLog
from attestation.errors import BadSignature, EndorsementMismatch, UntrustedEndorsement
from attestation.snp.endorsements import SnpEndorsements
from attestation.snp.product import PRODUCTS, ProductLine, Tcb, product_of_cpuid
from attestation.snp.report import SnpReport, parse_report
from attestation.snp.vcek import VekIdentity, parse_vek_identity
from attestation.x509 import (
    Certificate,
    KeyKind,
    VerifiedChain,
    VerifiedCrl,
    parse_certificate,
    parse_chain,
    require_chain_current,
    require_crl_current,
    require_unrevoked,
    verify_chain,
    verify_crl,
)

CHAIN_LENGTH = 3
_KEY_KINDS: frozenset[KeyKind] = frozenset({"p384", "rsa"})
_ISSUER_PREFIX = {"VCEK": "SEV-", "VLEK": "SEV-VLEK-"}
_PRODUCT_OF_ROOT = {f"ARK-{product.name}": product for product in PRODUCTS.values()}
_PEM_START = b"-----BEGIN"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedVek:
    """Steps 2 to 4's outcome, without a clock: may be kept for as long as its bytes stay the same.

    ``crl`` None means that none came along, so revocation was not looked at.
    """

    chain: VerifiedChain
    identity: VekIdentity
    crl: VerifiedCrl | None

    @property
    def not_after(self) -> datetime:
        """The earliest end of the chain and the CRL."""
        ends = [self.chain.not_after]
        return min(ends if self.crl is None else [*ends, self.crl.next_update])


@dataclass(frozen=True, slots=True, kw_only=True)
class SnpClaims:
    """What genuine Evidence claims; made by ``SnpVerifier`` alone.

    ``chip_id`` is the 64 bytes that the VCEK or the report names; None when both withhold it.
    ``signing_ca_sha256`` is the fingerprint of the ASK or ASVK.
    """

    report: SnpReport
    vek: VekIdentity
    current_tcb: Tcb
    reported_tcb: Tcb
    committed_tcb: Tcb
    launch_tcb: Tcb
    chip_id: bytes | None
    signing_ca_sha256: str
    is_revocation_checked: bool
    anchor: Anchor
    not_after: datetime

    @property
    def product(self) -> ProductLine:
        """The product line whose keys signed."""
        return self.vek.product

    @property
    def report_data(self) -> bytes:
        """The 64 bytes that the attested software chose."""
        return self.report.report_data


@dataclass(frozen=True, slots=True, kw_only=True)
class SnpVerifier:
    """Verifies SEV-SNP reports against pinned ARKs.

    With a ``cache``, a chain and a CRL that it has seen verified are not verified again; every
    other step runs on every call, with the same outcome.
    """

    anchors: TrustAnchors
    cache: VerifiedCache | None = None

    def verify(
        self,
        report_bytes: bytes,
        endorsements: SnpEndorsements | None,
        *,
        at: datetime,
        log: CheckLog,
    ) -> SnpClaims:
        """Claims of a genuine report; ``log`` receives one entry a step.

        ``endorsements`` None is the failure "endorsement_missing", never a step left out.

        Raises: AttestationError: the code of the step that failed.
        """
        with log.step("report_format", "the report follows its format"):  # 1
            report = parse_report(report_bytes)
        vek = self.verify_endorsements(endorsements, log=log)  # 2, 3, 4
        return verify_report(report, vek, at=at, log=log)  # 5 to 10

    def verify_endorsements(
        self, endorsements: SnpEndorsements | None, *, log: CheckLog
    ) -> VerifiedVek:
        """Steps 2 to 4, the part that is the same for every report of a chip at a TCB.

        Raises: AttestationError: the code of the step that failed.
        """
        with log.step("endorsements", "the key's certificates are at hand"):
            if endorsements is None:
                raise UntrustedEndorsement("endorsement_missing", "no certificates for this report")
        with log.step("vek_chain", "the key's certificate chain ends in a pinned root"):  # 2
            chain = self._verify_chain(endorsements)
        with log.step("vek_identity", "the certificates have AMD's roles and extensions"):  # 3
            identity = _identify(chain)
        crl = None
        if endorsements.crl is None:
            log.not_applicable("revocation", "no CRL came along")
        else:
            with log.step("revocation", "the issuing CA is not revoked"):  # 4
                crl = self._verify_crl(endorsements.crl, chain.root)
                require_unrevoked(crl, chain.certificates[1])
        return VerifiedVek(chain=chain, identity=identity, crl=crl)

    def _verify_chain(self, endorsements: SnpEndorsements) -> VerifiedChain:
        return once_chain(
            self.cache,
            ("VEK chain", endorsements.vek, endorsements.chain),
            lambda: _verify_chain(endorsements, self.anchors),
            family="amd-ark",
            anchors=self.anchors,
        )

    def _verify_crl(self, data: bytes, ark: Certificate) -> VerifiedCrl:
        what = "ARK CRL"
        return once(
            self.cache,
            (what, data, ark.sha256),
            lambda: verify_crl(data, issuer=ark, what=what),
        )


def verify_report(report: SnpReport, vek: VerifiedVek, *, at: datetime, log: CheckLog) -> SnpClaims:
    """Steps 5 to 10: the report against a key that AMD vouches for.

    Raises: AttestationError: the code of the step that failed.
    """
    identity, product = vek.identity, vek.identity.product
    with log.step("signing_key", "the report names the kind of key that came along"):  # 5
        _require_same_kind(report, identity)
    with log.step("report_signature", "the report is signed by this key"):  # 6
        _verify_signature(report, vek.chain.leaf)
    with log.step("product", "the report is from a processor of the key's product line"):  # 7
        _require_same_product(report, product)
        tcbs = [
            product.parse_tcb(raw)
            for raw in (
                report.current_tcb,
                report.reported_tcb,
                report.committed_tcb,
                report.launch_tcb,
            )
        ]
    with log.step("chip", "the key is this chip's"):  # 8
        chip_id = _chip_id(report, identity)
    with log.step("reported_tcb", "the key is for the TCB that the report names"):  # 9
        _require_same_tcb(tcbs[1], identity)
    with log.step("dates", "certificates and CRL are current"):  # 10
        require_chain_current(vek.chain, at)
        if vek.crl is not None:
            require_crl_current(vek.crl, at)
    return SnpClaims(
        report=report,
        vek=identity,
        current_tcb=tcbs[0],
        reported_tcb=tcbs[1],
        committed_tcb=tcbs[2],
        launch_tcb=tcbs[3],
        chip_id=chip_id,
        signing_ca_sha256=vek.chain.certificates[1].sha256,
        is_revocation_checked=vek.crl is not None,
        anchor=vek.chain.anchor,
        not_after=vek.not_after,
    )


def _verify_chain(endorsements: SnpEndorsements, anchors: TrustAnchors) -> VerifiedChain:
    what = "VEK chain"
    cas = parse_chain(endorsements.chain, what=what, key_kinds=_KEY_KINDS)
    return verify_chain(
        (_parse_leaf(endorsements.vek), *cas),
        num_certificates=CHAIN_LENGTH,
        family="amd-ark",
        anchors=anchors,
        what=what,
        foreign_issuer="chain_signature",
    )


def _parse_leaf(data: bytes) -> Certificate:
    what = "VEK"
    if not data.startswith(_PEM_START):
        return parse_certificate(data, what=what, key_kinds=_KEY_KINDS)
    certificates = parse_chain(data, what=what, key_kinds=_KEY_KINDS)
    if len(certificates) != 1:
        raise UntrustedEndorsement("chain", f"{what}: {len(certificates)} certificates, want 1")
    return certificates[0]


def _identify(chain: VerifiedChain) -> VekIdentity:
    """Roles by name, as AMD gives no other sign of them; the pinned root vouches for the names."""
    leaf, issuer, root = chain.certificates
    product = _PRODUCT_OF_ROOT.get(root.common_name)
    if product is None:
        raise UntrustedEndorsement("signer_role", "root is not named as a product line's ARK")
    identity = parse_vek_identity(leaf, product)
    if issuer.common_name != _ISSUER_PREFIX[identity.kind] + product.name:
        raise UntrustedEndorsement(
            "signer_role", f"{identity.kind}: issued by {issuer.common_name}, not by its own CA"
        )
    return identity


def _require_same_kind(report: SnpReport, identity: VekIdentity) -> None:
    if report.signing_key != identity.kind:
        raise EndorsementMismatch(
            "signing_key", f"report names a {report.signing_key}, certificate is a {identity.kind}"
        )


def _verify_signature(report: SnpReport, leaf: Certificate) -> None:
    key = leaf.ec_key  # on P-384, the only curve in _KEY_KINDS
    try:
        key.verify(
            encode_dss_signature(*report.signature), report.signed_bytes, ec.ECDSA(hashes.SHA384())
        )
    except InvalidSignature as err:
        raise BadSignature("report_signature", "report is not signed by this VEK") from err


def _require_same_product(report: SnpReport, product: ProductLine) -> None:
    """Version 2 does not name its processor: there the chain that verified says it."""
    if report.cpuid is None:
        return
    family, model, _ = report.cpuid
    if (named := product_of_cpuid(family, model)) != product:
        raise EndorsementMismatch(
            "hwid_mismatch", f"report is from {named.name}, the key from {product.name}"
        )


def _chip_id(report: SnpReport, identity: VekIdentity) -> bytes | None:
    """The chip, 64 bytes. MASK_CHIP_ID zeroes it in the report, a VLEK has none in itself."""
    reported = report.chip_id if any(report.chip_id) else None
    if identity.hwid is None:
        return reported
    certified = identity.hwid.ljust(len(report.chip_id), b"\0")
    if reported not in (None, certified):
        raise EndorsementMismatch("hwid_mismatch", "CHIP_ID is not the hwID of this VCEK")
    return certified


def _require_same_tcb(reported: Tcb, identity: VekIdentity) -> None:
    if reported != identity.tcb:
        raise EndorsementMismatch(
            "tcb_mismatch", f"REPORTED_TCB is {reported}, {identity.kind} is for {identity.tcb}"
        )

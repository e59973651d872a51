"""Intel DCAP: is this quote genuine, and at which TCB was it made?  [Intel DCAP QVL]

Appraisal in numbered steps; the first that fails ends it. Signatures, revocation and identity come
before dates, so that expired but genuine collateral is told apart from a forgery. Whether what the
quote claims is good enough is AppraisalPolicy's question.
"""

import hashlib
import hmac
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
from attestation.tdx import tcb
from attestation.tdx.collateral import (
    EnclaveLevel,
    VerifiedQeIdentity,
    VerifiedTcbInfo,
    require_current,
    verify_qe_identity,
    verify_tcb_info,
)
from attestation.tdx.endorsements import TdxCollateral
from attestation.tdx.pck import PckExtension, parse_pck_extension
from attestation.tdx.quote import EnclaveReport, Quote, TdReport, Tee, parse_quote
from attestation.x509 import (
    Certificate,
    VerifiedChain,
    VerifiedCrl,
    parse_chain,
    require_chain_current,
    require_crl_current,
    require_unrevoked,
    verify_chain,
    verify_crl,
)

PCK_CHAIN_LENGTH = 3
TCB_CHAIN_LENGTH = 2
_PCK_ROLE = "SGX PCK Certificate"
_PCK_CA_ROLES = ("SGX PCK Platform CA", "SGX PCK Processor CA")
_TCB_SIGNER_ROLE = "SGX TCB Signing"
_ECDSA_SHA256 = ec.ECDSA(hashes.SHA256())


@dataclass(frozen=True, slots=True, kw_only=True)
class TdxClaims:
    """What genuine Evidence claims; made by ``TdxVerifier`` alone."""

    tee: Tee
    report: TdReport | EnclaveReport
    tcb: tcb.TcbAppraisal
    tcb_evaluation_data_number: int
    fmspc: bytes
    ppid: bytes
    collateral_issued: datetime
    verified_at: datetime
    anchor: Anchor
    not_after: datetime

    @property
    def report_data(self) -> bytes:
        """The 64 bytes that the attested software chose."""
        return self.report.report_data


@dataclass(frozen=True, slots=True, kw_only=True)
class _Endorsed:
    """Step 4's outcome: everything fetched, each of it signed and unrevoked."""

    tcb_info: VerifiedTcbInfo
    qe_identity: VerifiedQeIdentity
    crls: tuple[VerifiedCrl, VerifiedCrl]
    signers: tuple[VerifiedChain, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TdxVerifier:
    """Verifies Intel quotes, TDX and SGX, against pinned roots.

    With a ``cache``, certificate chains and signatures of collateral that it has seen verified are
    not verified again; every other step runs on every call, with the same outcome.
    """

    anchors: TrustAnchors
    cache: VerifiedCache | None = None

    def verify(
        self, quote_bytes: bytes, collateral: TdxCollateral | None, *, at: datetime, log: CheckLog
    ) -> TdxClaims:
        """Claims of a genuine quote; ``log`` receives one entry a step.

        ``collateral`` None is the failure "endorsement_missing", never a step left out.

        Raises: AttestationError: the code of the step that failed.
        """
        with log.step("quote_format", "the quote follows its format"):  # 1
            quote = parse_quote(quote_bytes)
        with log.step("endorsements", "collateral is at hand"):
            if collateral is None:
                raise UntrustedEndorsement("endorsement_missing", "no collateral for this quote")
        with log.step("pck_chain", "the platform's certificate chain ends in a pinned root"):  # 2
            chain = self._verify_pck_chain(quote.pck_chain_pem)
            pck = once(
                self.cache,
                ("PCK extension", chain.leaf.sha256),
                lambda: parse_pck_extension(chain.leaf),
            )
        endorsed = self._verify_endorsements(chain, collateral, quote.tee, log)  # 3, 4
        with log.step("platform_match", "the TCB info is for this platform"):  # 5
            _require_same_platform(endorsed.tcb_info, pck)
        with log.step("qe_report", "the Quoting Enclave is signed, bound and known"):  # 6
            enclave = _verify_quoting_enclave(quote, chain, endorsed.qe_identity)
        with log.step("quote_signature", "header and body are signed by the attestation key"):  # 7
            self._verify_quote_signature(quote)
        with log.step("dates", "certificates, TCB info, QE identity and CRLs are current"):  # 8
            _require_current(chain, endorsed, at)
        td_report = quote.body if isinstance(quote.body, TdReport) else None
        module = None
        if td_report is not None:
            with log.step("tdx_module", "the TDX module is Intel's and has a TCB level"):  # 9
                module = tcb.match_module(endorsed.tcb_info, td_report)
        with log.step("tcb_level", "the platform reaches a TCB level"):  # 10
            level = tcb.match_platform(endorsed.tcb_info, pck, td_report)
            appraised = tcb.merge(level, module, enclave)
        if td_report is not None and td_report.tee_tcb_svn_2 is not None:
            with log.step("tdx_module_now", "the TDX module's current TCB has a level too"):  # 11
                appraised = tcb.with_current_module(
                    appraised, endorsed.tcb_info, pck, td_report.tee_tcb_svn_2, enclave
                )
        return TdxClaims(
            tee=quote.tee,
            report=quote.body,
            tcb=appraised,
            tcb_evaluation_data_number=min(
                endorsed.tcb_info.tcb_evaluation_data_number,
                endorsed.qe_identity.tcb_evaluation_data_number,
            ),
            fmspc=pck.fmspc,
            ppid=pck.ppid,
            collateral_issued=min(endorsed.tcb_info.issue_date, endorsed.qe_identity.issue_date),
            verified_at=at,
            anchor=chain.anchor,
            not_after=min(
                chain.not_after,
                *(signer.not_after for signer in endorsed.signers),
                endorsed.tcb_info.next_update,
                endorsed.qe_identity.next_update,
                *(crl.next_update for crl in endorsed.crls),
            ),
        )

    def _verify_pck_chain(self, pem: bytes) -> VerifiedChain:
        return once_chain(
            self.cache,
            ("PCK chain", pem),
            lambda: _verify_pck_chain(pem, self.anchors),
            family="dcap",
            anchors=self.anchors,
        )

    def _verify_endorsements(
        self,
        chain: VerifiedChain,
        collateral: TdxCollateral,
        tee: Tee,
        log: CheckLog,
    ) -> _Endorsed:
        pck, pck_ca, root = chain.certificates
        with log.step("revocation", "platform certificate and its CA are not revoked"):  # 3
            root_crl = self._verify_crl(collateral.root_ca_crl, root, "root CRL")
            pck_crl = self._verify_crl(collateral.pck_crl, pck_ca, "PCK CRL")
            require_unrevoked(root_crl, pck_ca)
            require_unrevoked(pck_crl, pck)
        with log.step("tcb_info", "the TCB info is signed by Intel's role for it"):  # 4
            signer = self._verify_signer(collateral.tcb_info_issuer_chain, chain, root_crl)
            text, signature = collateral.tcb_info, collateral.tcb_info_signature
            info = once(
                self.cache,
                ("TCB info", text, signature, signer.leaf.sha256, tee),
                lambda: verify_tcb_info(text, signature, signer=signer, tee=tee),
            )
        with log.step("qe_identity", "the QE identity is signed by Intel's role for it"):
            qe_signer = signer
            if collateral.qe_identity_issuer_chain != collateral.tcb_info_issuer_chain:
                qe_signer = self._verify_signer(
                    collateral.qe_identity_issuer_chain, chain, root_crl
                )
            qe_text, qe_signature = collateral.qe_identity, collateral.qe_identity_signature
            identity = once(
                self.cache,
                ("QE identity", qe_text, qe_signature, qe_signer.leaf.sha256, tee),
                lambda: verify_qe_identity(qe_text, qe_signature, signer=qe_signer, tee=tee),
            )
        return _Endorsed(
            tcb_info=info,
            qe_identity=identity,
            crls=(root_crl, pck_crl),
            signers=(signer,) if qe_signer is signer else (signer, qe_signer),
        )

    def _verify_quote_signature(self, quote: Quote) -> None:
        point = quote.attestation_key
        key = once(self.cache, ("attestation key", point), lambda: _read_attestation_key(point))
        if not _is_signed(key, quote.signed_bytes, quote.signature):
            raise BadSignature("quote_signature", "header and body are not signed by this key")

    def _verify_crl(self, data: bytes, issuer: Certificate, what: str) -> VerifiedCrl:
        return once(
            self.cache,
            (what, data, issuer.sha256),
            lambda: verify_crl(data, issuer=issuer, what=what),
        )

    def _verify_signer(
        self, pem: str, pck_chain: VerifiedChain, root_crl: VerifiedCrl
    ) -> VerifiedChain:
        """The TCB signing chain under the same root as the quote's own chain."""
        anchor, root = pck_chain.anchor, pck_chain.root
        chain = once(
            self.cache,
            ("TCB signing chain", pem, anchor),
            lambda: _verify_signer_chain(pem, anchor, root),
        )
        require_unrevoked(root_crl, chain.leaf)
        return chain


def _verify_pck_chain(pem: bytes, anchors: TrustAnchors) -> VerifiedChain:
    what = "PCK chain"
    chain = verify_chain(
        parse_chain(pem, what=what),
        num_certificates=PCK_CHAIN_LENGTH,
        family="dcap",
        anchors=anchors,
        what=what,
    )
    _require_role(chain, (_PCK_ROLE,), what)
    if not chain.certificates[1].common_name.endswith(_PCK_CA_ROLES):
        raise UntrustedEndorsement("signer_role", f"{what}: not issued by a PCK CA")
    return chain


def _verify_signer_chain(pem: str, anchor: Anchor, root: Certificate) -> VerifiedChain:
    what = "TCB signing chain"
    chain = verify_chain(
        parse_chain(pem.encode("utf-8"), what=what, known=(root,)),
        num_certificates=TCB_CHAIN_LENGTH,
        family="dcap",
        anchors=TrustAnchors(anchors=(anchor,)),
        what=what,
    )
    _require_role(chain, (_TCB_SIGNER_ROLE,), what)
    return chain


def _require_role(chain: VerifiedChain, roles: tuple[str, ...], what: str) -> None:
    if not chain.leaf.common_name.endswith(roles):
        raise UntrustedEndorsement("signer_role", f"{what}: its leaf is not named {roles[0]}")


def _require_current(chain: VerifiedChain, endorsed: _Endorsed, at: datetime) -> None:
    for certified in (chain, *endorsed.signers):
        require_chain_current(certified, at)
    info, identity = endorsed.tcb_info, endorsed.qe_identity
    require_current("TCB info", info.issue_date, info.next_update, at)
    require_current("QE identity", identity.issue_date, identity.next_update, at)
    for crl in endorsed.crls:
        require_crl_current(crl, at)


def _require_same_platform(info: VerifiedTcbInfo, pck: PckExtension) -> None:
    if info.fmspc != pck.fmspc:
        raise EndorsementMismatch(
            "fmspc_mismatch", f"TCB info is for {info.fmspc.hex()}, platform is {pck.fmspc.hex()}"
        )
    if info.pce_id != pck.pce_id:
        raise EndorsementMismatch(
            "pceid_mismatch", f"TCB info is for {info.pce_id.hex()}, platform is {pck.pce_id.hex()}"
        )


def _verify_quoting_enclave(
    quote: Quote, chain: VerifiedChain, identity: VerifiedQeIdentity
) -> EnclaveLevel:
    """PCK key signs the QE report, the QE report names the attestation key, the QE is known."""
    key = chain.leaf.ec_key
    if not _is_signed(key, quote.qe_report.raw, quote.qe_report_signature):
        raise BadSignature("qe_report_signature", "QE report is not signed by the PCK key")
    named = hashlib.sha256(quote.attestation_key + quote.qe_auth_data).digest() + bytes(32)
    if not hmac.compare_digest(named, quote.qe_report.report_data):
        raise BadSignature("qe_binding", "QE report names another attestation key")
    return tcb.match_quoting_enclave(identity, quote.qe_report)


def _read_attestation_key(point: bytes) -> ec.EllipticCurvePublicKey:
    try:
        return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), b"\x04" + point)
    except ValueError as err:
        raise BadSignature("bad_key", "attestation key is not a point on P-256") from err


def _is_signed(key: ec.EllipticCurvePublicKey, data: bytes, signature: bytes) -> bool:
    r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
    try:
        key.verify(encode_dss_signature(r, s), data, _ECDSA_SHA256)
    except InvalidSignature:
        return False
    return True

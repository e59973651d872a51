"""May this Evidence be relied on?  Verify it, check what it is bound to, apply the policy.

Bad Evidence never raises: the result starts as a rejection and only the last step completes it.
The work is in numbered steps; the first that fails gives the result its code.
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from attestation.anchors import TrustAnchors
from attestation.binding import keyset_digest, require_bound
from attestation.checks import CheckLog
from attestation.errors import (
    AttestationError,
    EndorsementMismatch,
    MalformedEvidence,
    StaleEvidence,
    UnsupportedEvidence,
)
from attestation.keyset import Keyset, parse_keyset
from attestation.model import AttestationResult, ClaimValue, EvidenceBundle, Nonce, Tier
from attestation.policy import AppraisalPolicy
from attestation.registry import EvidenceKind, evidence_kind
from attestation.strict_json import format_time
from attestation.tdx.endorsements import TdxCollateral
from attestation.tdx.quote import TdReport
from attestation.tdx.rules import measurements
from attestation.tdx.verifier import TdxClaims

MISSING_CODES = frozenset({"crl_missing", "endorsement_missing"})
REPORT_DATA_BYTES = 64
_PHYSICAL = "physical_access: interposers on the memory bus and other attacks on the machine itself"
_NO_MEASUREMENTS = "measurements: the policy holds no reference values, so any software passes"
_EVENT_LOG = "event_log: it came along and was not replayed against the RTMRs"
_NO_GPU = "gpu: no GPU evidence came along, so work on a GPU would not be attested"
_SIMULATED = "hardware: there is none, the Evidence is simulated"
_NO_KEYSET = "channel: a bare quote names no keys, so no connection is bound to it"
_NO_FRESHNESS = "freshness: no nonce was asked for, so the quote may be an old one"


def appraise(
    bundle: EvidenceBundle,
    *,
    nonce: Nonce,
    policy: AppraisalPolicy,
    anchors: TrustAnchors,
    at: datetime,
    collateral: TdxCollateral | None = None,
) -> AttestationResult:
    """The verdict on a bundle; ``collateral`` given here wins over the bundle's own.

    ``nonce`` is the one the RelyingParty chose, never one read from the bundle.
    """
    draft = _Draft(policy=policy, at=at, evidence_sha256=_sha256(bundle.quote))
    try:
        with draft.log.step("evidence_kind", "every piece of Evidence is one we appraise"):  # 1
            kind = evidence_kind(bundle.tee)
            if bundle.gpu:
                raise UnsupportedEvidence(
                    "unsupported_gpu", f"{len(bundle.gpu)} GPU entries that cannot be appraised"
                )
        claims = draft.verify(bundle.quote, collateral or bundle.collateral, anchors, kind)  # 2
        with draft.log.step("evidence_label", "the Evidence is what its label says"):  # 3
            _require_label(kind, claims)
        with draft.log.step("binding", "the quote answers our nonce and names this keyset"):  # 4
            require_bound(bundle, nonce, claims.report_data)
        with draft.log.step("keyset", "the keyset is well formed and current"):  # 5
            draft.keyset = _current_keyset(bundle, at)
            draft.claims |= _keyset_claims(draft.keyset, bundle)
        draft.apply_policy(claims)  # 6
    except AttestationError as err:
        return draft.reject(err)
    draft.not_covered.append(_NO_GPU)
    if bundle.event_log is not None:
        draft.not_covered.append(_EVENT_LOG)
    return draft.accept(claims)


def appraise_quote(
    quote: bytes,
    collateral: TdxCollateral | None,
    *,
    policy: AppraisalPolicy,
    anchors: TrustAnchors,
    at: datetime,
    expected_report_data: bytes | None = None,
) -> AttestationResult:
    """The verdict on a bare quote: genuine, at a TCB the policy accepts, but bound to no keyset.

    Without ``expected_report_data`` (64 bytes) freshness is not judged, and the result says so.
    """
    draft = _Draft(policy=policy, at=at, evidence_sha256=_sha256(quote))
    try:
        claims = draft.verify(quote, collateral, anchors, evidence_kind("tdx"))
        if expected_report_data is None:
            draft.log.not_applicable("report_data", "not asked for")
            draft.not_covered.append(_NO_FRESHNESS)
        else:
            with draft.log.step("report_data", "REPORTDATA is the value we asked for"):
                _require_report_data(claims, expected_report_data)
        draft.apply_policy(claims)
    except AttestationError as err:
        return draft.reject(err)
    draft.not_covered.append(_NO_KEYSET)
    return draft.accept(claims)


def reject_unread(
    err: AttestationError, evidence: bytes, *, policy: AppraisalPolicy, at: datetime
) -> AttestationResult:
    """The verdict on Evidence that could not even be read."""
    draft = _Draft(policy=policy, at=at, evidence_sha256=_sha256(evidence))
    return draft.reject(err)


@dataclass(slots=True, kw_only=True)
class _Draft:
    """A verdict in the making; until ``accept`` it can only become a rejection."""

    policy: AppraisalPolicy
    at: datetime
    evidence_sha256: str
    log: CheckLog = field(default_factory=CheckLog)
    claims: dict[str, ClaimValue] = field(default_factory=dict)
    not_covered: list[str] = field(default_factory=list)
    keyset: Keyset | None = None
    trust_anchor: str = ""
    is_simulated: bool = False

    def verify(
        self,
        quote: bytes,
        collateral: TdxCollateral | None,
        anchors: TrustAnchors,
        kind: EvidenceKind,
    ) -> TdxClaims:
        """Under the anchors that the policy names and no other."""
        verifier = kind.make_verifier(anchors.of_kinds(self.policy.anchor_kinds))
        claims = verifier.verify(quote, collateral, at=self.at, log=self.log)
        self.trust_anchor = claims.anchor.name
        self.is_simulated = claims.anchor.kind == "fake"
        self.claims |= _quote_claims(claims)
        return claims

    def apply_policy(self, claims: TdxClaims) -> None:
        """Every rule is asked, so that all findings are listed; the first one is raised."""
        first: AttestationError | None = None
        for rule in self.policy.rules:
            try:
                with self.log.step(rule.name, rule.passed):
                    rule.require(claims)
            except AttestationError as err:
                first = first or err
        if first is not None:
            raise first
        if not self.policy.are_measurements_checked:
            self.log.not_applicable("measurements", "the policy holds no reference values")
            self.not_covered.append(_NO_MEASUREMENTS)

    def reject(self, err: AttestationError) -> AttestationResult:
        """Tier "none" when there was nothing to judge, else "contraindicated"."""
        if not self.log.has_failed:
            self.log.fail("endorsements" if err.code in MISSING_CODES else "evidence_format", err)
        self.log.not_applicable("remaining", f"not reached: {err.code} came first")
        is_unjudged = isinstance(err, MalformedEvidence | UnsupportedEvidence)
        tier: Tier = "none" if is_unjudged or err.code in MISSING_CODES else "contraindicated"
        return self._result(tier, err.code, self.at)

    def accept(self, claims: TdxClaims) -> AttestationResult:
        """Affirming, or warning when the policy allowed something less than genuine and current."""
        tier: Tier = "affirming"
        if claims.tcb.status != "UpToDate":
            self.log.warning("tcb_accepted", f"the policy accepts TCB status {claims.tcb.status}")
            tier = "warning"
        if self.is_simulated:
            self.log.warning("simulated", "SIMULATED: a FAKE root signed this, it protects NOTHING")
            self.not_covered.append(_SIMULATED)
            tier = "warning"
        self.not_covered.append(_PHYSICAL)
        not_after = claims.not_after
        if self.keyset is not None:
            not_after = min(not_after, self.keyset.not_after)
        return self._result(tier, None, not_after)

    def _result(self, tier: Tier, code: str | None, not_after: datetime) -> AttestationResult:
        identity = "|".join(
            (self.evidence_sha256, self.policy.sha256, self.at.isoformat(), tier, code or "")
        )
        return AttestationResult(
            tier=tier,
            code=code,
            checks=tuple(self.log.checks),
            claims=self.claims,
            not_covered=tuple(self.not_covered),
            simulated=self.is_simulated,
            trust_anchor=self.trust_anchor,
            policy_name=self.policy.name,
            policy_sha256=self.policy.sha256,
            evidence_sha256=self.evidence_sha256,
            verdict_id=f"v1-{_sha256(identity.encode('ascii'))[:32]}",
            appraised_at=self.at,
            not_after=not_after,
        )


def _require_label(kind: EvidenceKind, claims: TdxClaims) -> None:
    if (claims.tee, claims.anchor.kind) != (kind.tee, kind.anchor_kind):
        raise EndorsementMismatch(
            "tee_type",
            f"labelled {kind.anchor_kind} {kind.tee}, is {claims.anchor.kind} {claims.tee}",
        )


def _current_keyset(bundle: EvidenceBundle, at: datetime) -> Keyset:
    keyset = parse_keyset(bundle.keyset)
    if at >= keyset.not_after:
        raise StaleEvidence("keyset_expired", f"keyset ended {format_time(keyset.not_after)}")
    return keyset


def _require_report_data(claims: TdxClaims, expected: bytes) -> None:
    if len(expected) != REPORT_DATA_BYTES:
        raise MalformedEvidence("nonce_length", f"report data: {len(expected)} bytes, want 64")
    if not hmac.compare_digest(expected, claims.report_data):
        raise StaleEvidence("report_data", "REPORTDATA is not the value we asked for")


def _quote_claims(claims: TdxClaims) -> Mapping[str, ClaimValue]:
    facts: dict[str, ClaimValue] = {
        "tee": claims.tee,
        "fmspc": claims.fmspc.hex(),
        "tcb_status": claims.tcb.status,
        "tcb_date": format_time(claims.tcb.tcb_date),
        "tcb_evaluation_data_number": claims.tcb_evaluation_data_number,
        "advisories": claims.tcb.advisories,
        "report_data": claims.report_data.hex(),
        **measurements(claims),
    }
    if isinstance(claims.report, TdReport):
        facts["td_attributes"] = claims.report.td_attributes.hex()
        facts["xfam"] = claims.report.xfam.hex()
    return facts


def _keyset_claims(keyset: Keyset, bundle: EvidenceBundle) -> Mapping[str, ClaimValue]:
    return {
        "replica": keyset.replica,
        "mode": keyset.mode,
        "keyset_sha256": keyset_digest(bundle.keyset).hex(),
        "keyset_not_after": format_time(keyset.not_after),
        "ohttp_config_sha256": tuple(key.config_sha256 for key in keyset.ohttp),
        "tls_spki_sha256": tuple(key.spki_sha256 for key in keyset.tls),
        "weights_sha256": keyset.weights_sha256,
    }


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()

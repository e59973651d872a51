"""How does a verdict come about?  It starts as a rejection and only ``accept`` completes it.

A Draft collects checks, claims, gaps and ends while the appraisal runs; each verified piece of
Evidence is admitted once, under the anchors that the policy names and no other.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from attestation.anchors import Anchor, TrustAnchors
from attestation.cache import VerifiedCache
from attestation.checks import CheckLog
from attestation.cpu import CpuClaims
from attestation.errors import (
    AttestationError,
    EvidenceUnavailable,
    MalformedEvidence,
    PolicyViolation,
    UnsupportedEvidence,
)
from attestation.model import AttestationResult, ClaimValue, Submodule, Tier
from attestation.policy import CPU_TEES, AppraisalPolicy
from attestation.registry import EvidenceKind
from attestation.rules import EndingRule

MISSING_CODES = frozenset({"crl_missing", "endorsement_missing"})
FOREIGN_CODE = "untrusted_root"
_UNJUDGED = (MalformedEvidence, UnsupportedEvidence, EvidenceUnavailable)
CPU = "cpu"
CPU_SECTIONS = frozenset(CPU_TEES.values())
_PHYSICAL = "physical_access: interposers on the memory bus and other attacks on the machine itself"
_SIMULATED = "hardware: there is none, the Evidence is simulated"
_FOREIGN = "vendor: the root is the caller's own, so no vendor vouches for this Evidence"
_UNMEASURED = {  # section: what passes when the policy holds no reference values for it
    "tdx": "any software passes in the guest",
    "snp": "any software passes in the guest",
    "nitro": "any software passes in the enclave",
    "nvidia": "any firmware and driver that NVIDIA signed passes on the GPUs",
    "nras": "any device that NVIDIA's service finds good passes",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """One verified piece of Evidence, waiting for the rules of its section."""

    section: str
    submodules: tuple[str, ...]
    verified: object
    log: CheckLog


@dataclass(slots=True, kw_only=True)
class Draft:
    """A verdict in the making."""

    policy: AppraisalPolicy
    at: datetime
    evidence_sha256: str
    cache: VerifiedCache | None = None
    log: CheckLog = field(default_factory=CheckLog)
    claims: dict[str, ClaimValue] = field(default_factory=dict)
    submods: dict[str, Submodule] = field(default_factory=dict)
    not_covered: list[str] = field(default_factory=list)
    admitted: list[Admitted] = field(default_factory=list)
    anchors: list[Anchor] = field(default_factory=list)
    ends: list[datetime] = field(default_factory=list)
    shortfalls: list[tuple[str, str]] = field(default_factory=list)  # check and words

    def narrowed(self, anchors: TrustAnchors) -> TrustAnchors:
        """The anchors that this policy lets Evidence end in, and those added by the caller."""
        return anchors.of_kinds(self.policy.anchor_kinds | {"foreign"})

    def verify_cpu(
        self, evidence: bytes, endorsements: object, anchors: TrustAnchors, kind: EvidenceKind
    ) -> CpuClaims:
        """The CPU TEE's claims, admitted.  Raises: AttestationError."""
        claims = kind.verify(
            evidence,
            endorsements,
            anchors=self.narrowed(anchors),
            at=self.at,
            log=self.log,
            cache=self.cache,
        )
        self.admit_cpu(claims)
        return claims

    def admit_cpu(self, claims: CpuClaims) -> None:
        """Verified claims of the CPU TEE.  Raises: PolicyViolation("tee_type")."""
        self.claims |= claims.facts
        self.add_submodule(CPU, anchors=(claims.anchor,), facts=claims.facts)
        self.admit(
            claims.section, submodules=[CPU], verified=claims.verified, not_after=claims.not_after
        )
        self.not_covered.extend(claims.not_covered)
        if claims.shortfall:
            self.shortfalls.append(("tcb_accepted", claims.shortfall))
        with self.log.step("tee_type", "the policy accepts this kind of TEE"):
            if claims.tee not in self.policy.cpu:
                want = ", ".join(sorted(self.policy.cpu))
                raise PolicyViolation("tee_type", f"TEE is {claims.tee}, want {want}")

    def add_submodule(
        self, name: str, *, anchors: Sequence[Anchor], facts: Mapping[str, ClaimValue]
    ) -> None:
        """One verified piece of Evidence by itself, and every root that it rests on.

        The first is its own. None at all: trust came from another place than a pinned root.
        """
        self.anchors.extend(anchors)
        is_vendors = all(anchor.kind == "vendor" for anchor in anchors)
        self.submods[name] = Submodule(
            status="affirming" if is_vendors else "warning",
            trust_anchor=anchors[0].name if anchors else "",
            claims=facts,
        )

    def admit(
        self, section: str, *, submodules: Sequence[str], verified: object, not_after: datetime
    ) -> None:
        """Verified claims, about these submodules, wait for the rules of their section."""
        log = self.log if section in CPU_SECTIONS else self.log.scoped(section)
        self.admitted.append(
            Admitted(section=section, submodules=tuple(submodules), verified=verified, log=log)
        )
        self.ends.append(not_after)

    def apply_policy(self) -> None:
        """Every rule is asked, so that all findings are listed; the first one is raised."""
        first: AttestationError | None = None
        for piece in self.admitted:
            for rule in self.policy.rules[piece.section]:
                try:
                    with piece.log.step(rule.name, rule.passed):
                        rule.require(piece.verified)
                    if isinstance(rule, EndingRule):
                        self.ends.append(rule.end(piece.verified))
                except AttestationError as err:
                    first = first or err
                    for name in piece.submodules:
                        refused = replace(self.submods[name], status="contraindicated")
                        self.submods[name] = refused
        if first is not None:
            raise first
        for section in dict.fromkeys(piece.section for piece in self.admitted):
            if not self.policy.has_reference_values(section):
                reason = "the policy holds no reference values"
                self.log.not_applicable(f"{section}.measurements", reason)
                self.not_covered.append(f"measurements: {_UNMEASURED[section]}: {reason}")

    def reject(self, err: AttestationError) -> AttestationResult:
        """Tier "none" when there was nothing to judge, else "contraindicated"."""
        if not self.log.has_failed:
            self.log.fail(_unread_step(err), err)
        self.log.not_applicable("remaining", f"not reached: {err.code} came first")
        is_unjudged = isinstance(err, _UNJUDGED)
        tier: Tier = "none" if is_unjudged or err.code in MISSING_CODES else "contraindicated"
        return self._result(tier, err.code, self.at)

    def accept(self) -> AttestationResult:
        """Affirming, or warning when the policy allowed something less than genuine and current.

        A foreign root is a warning whatever the policy says; accepted only if the policy names it.
        """
        tier: Tier = "affirming"
        code: str | None = None
        for check, shortfall in self.shortfalls:
            self.log.warning(check, f"the policy accepts {shortfall}")
            tier = "warning"
        if self._has_anchor("fake"):
            self.log.warning("simulated", "SIMULATED: a FAKE root signed this, it protects NOTHING")
            self.not_covered.append(_SIMULATED)
            tier = "warning"
        if self._has_anchor("foreign"):
            self.log.warning("trust_anchor", "FOREIGN ROOT: the trust anchor is the caller's own")
            self.not_covered.append(_FOREIGN)
            tier = "warning"
            code = None if self.policy.allows_foreign else FOREIGN_CODE
        self.not_covered.append(_PHYSICAL)
        return self._result(tier, code, min(self.ends) if code is None else self.at)

    def _has_anchor(self, kind: str) -> bool:
        return any(anchor.kind == kind for anchor in self.anchors)

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
            simulated=self._has_anchor("fake"),
            trust_anchor=self.anchors[0].name if self.anchors else "",
            policy_name=self.policy.name,
            policy_sha256=self.policy.sha256,
            evidence_sha256=self.evidence_sha256,
            verdict_id=f"v1-{sha256_hex(identity.encode('ascii'))[:32]}",
            appraised_at=self.at,
            not_after=not_after,
            submods=self.submods,
        )


def _unread_step(err: AttestationError) -> str:
    """What failed before any step of an appraisal was logged."""
    if isinstance(err, EvidenceUnavailable):
        return "evidence"
    return "endorsements" if err.code in MISSING_CODES else "evidence_format"


def sha256_hex(data: bytes) -> str:
    """SHA-256 in lower-case hex."""
    return hashlib.sha256(data).hexdigest()

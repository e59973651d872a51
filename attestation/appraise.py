"""May this Evidence be relied on?  Verify it, check what it is bound to, apply the policy.

Bad Evidence never raises: the result starts as a rejection and only the last step completes it.
The work is in numbered steps; the first that fails gives the result its code.
"""

import hmac
from collections.abc import Mapping
from datetime import datetime

from attestation.anchors import TrustAnchors
from attestation.binding import gpu_nonce, keyset_digest, require_bound
from attestation.cache import VerifiedCache
from attestation.cpu import CpuClaims
from attestation.devices import verify_gpus, verify_token
from attestation.draft import MISSING_CODES as MISSING_CODES
from attestation.draft import Draft, sha256_hex
from attestation.errors import (
    AttestationError,
    EndorsementMismatch,
    MalformedEvidence,
    PolicyViolation,
    StaleEvidence,
)
from attestation.keyset import Keyset, parse_keyset
from attestation.model import AttestationResult, ClaimValue, EvidenceBundle, GpuEndorsements, Nonce
from attestation.nras.jwks import Jwks
from attestation.policy import OWN_PROFILE, AppraisalPolicy, Need
from attestation.registry import EvidenceKind, bundle_kind, evidence_kind
from attestation.snp.endorsements import SnpEndorsements
from attestation.strict_json import format_time
from attestation.tdx.endorsements import TdxCollateral

_EVENT_LOG = "event_log: it came along and was not replayed against the RTMRs"
_NO_GPU = "gpu: no GPU evidence came along, so work on a GPU would not be attested"
NO_KEYSET = "channel: bare Evidence names no keys, so no connection is bound to it"
_NO_FRESHNESS = "freshness: no nonce was asked for, so the Evidence may be an old one"


def appraise(
    bundle: EvidenceBundle,
    *,
    nonce: Nonce,
    policy: AppraisalPolicy,
    anchors: TrustAnchors,
    at: datetime,
    collateral: TdxCollateral | SnpEndorsements | None = None,
    gpu_endorsements: GpuEndorsements | None = None,
    jwks: Jwks | None = None,
    tls_key_sha256: bytes | None = None,
    cache: VerifiedCache | None = None,
) -> AttestationResult:
    """The verdict on a bundle; endorsements given here win over the bundle's own.

    ``nonce`` is the one the RelyingParty chose, never one read from the bundle; ``jwks`` are the
    keys that it fetched from NVIDIA's service, needed when the bundle holds a token.
    ``tls_key_sha256``, of the RelyingParty's own connection, must be in the keyset; None when it
    speaks to the replica by another of the keyset's keys, or not at all. A ``cache``
    that is kept between calls saves time and never changes a verdict.
    """
    draft = Draft(policy=policy, at=at, evidence_sha256=sha256_hex(bundle.quote), cache=cache)
    try:
        with draft.log.step(
            "evidence_kind", "every piece of Evidence is one the policy takes"
        ):  # 1
            kind = bundle_kind(bundle.tee)
            require_profile(policy, OWN_PROFILE)
            require_parts(policy, has_gpu=bool(bundle.gpu), has_nras=bundle.nras is not None)
        claims = draft.verify_cpu(bundle.quote, collateral or bundle.collateral, anchors, kind)  # 2
        with draft.log.step("evidence_label", "the Evidence is what its label says"):  # 3
            require_label(kind, claims)
        with draft.log.step("binding", "the quote answers our nonce and names this keyset"):  # 4
            require_bound(bundle, nonce, claims.report_data)
        with draft.log.step("keyset", "the keyset is well formed and current"):  # 5
            keyset = _current_keyset(bundle, at)
            draft.claims |= _keyset_claims(keyset, bundle)
            draft.ends.append(keyset.not_after)
        if tls_key_sha256 is not None:
            with draft.log.step("channel", "the connection's TLS key is in the attested keyset"):
                _require_tls_key(keyset, tls_key_sha256)
        device_nonce = gpu_nonce(nonce, keyset_digest(bundle.keyset))
        system = None
        if bundle.gpu:  # 6
            system = verify_gpus(
                draft,
                bundle.gpu,
                nonce=device_nonce,
                anchors=anchors,
                endorsements=gpu_endorsements or bundle.gpu_endorsements,
            )
        if bundle.nras is not None:  # 7
            verify_token(draft, bundle.nras, nonce=device_nonce, jwks=jwks, system=system)
        draft.apply_policy()  # 8
    except AttestationError as err:
        return draft.reject(err)
    if not bundle.gpu and bundle.nras is None:
        draft.not_covered.append(_NO_GPU)
    if bundle.event_log is not None:
        draft.not_covered.append(_EVENT_LOG)
    return draft.accept()


def appraise_quote(
    quote: bytes,
    collateral: TdxCollateral | None,
    *,
    policy: AppraisalPolicy,
    anchors: TrustAnchors,
    at: datetime,
    expected_report_data: bytes | None = None,
) -> AttestationResult:
    """The verdict on a bare Intel quote, TDX or SGX; see ``appraise_report``."""
    return appraise_report(
        "tdx",
        quote,
        collateral,
        policy=policy,
        anchors=anchors,
        at=at,
        expected_report_data=expected_report_data,
    )


def appraise_report(
    label: str,
    evidence: bytes,
    endorsements: object,
    *,
    policy: AppraisalPolicy,
    anchors: TrustAnchors,
    at: datetime,
    expected_report_data: bytes | None = None,
) -> AttestationResult:
    """The verdict on a CPU TEE's bare Evidence: genuine and current, but bound to no keyset.

    ``label`` is an entry of ``registry``, ``endorsements`` that family's. Without
    ``expected_report_data`` (64 bytes; a Nitro document's nonce has 32) freshness is not judged,
    and the result says so.
    """
    draft = Draft(policy=policy, at=at, evidence_sha256=sha256_hex(evidence))
    try:
        with draft.log.step("evidence_kind", "the policy requires no other Evidence"):
            kind = evidence_kind(label)
            require_parts(policy, has_gpu=False, has_nras=False)
        claims = draft.verify_cpu(evidence, endorsements, anchors, kind)
        if expected_report_data is None:
            draft.log.not_applicable("report_data", "not asked for")
            draft.not_covered.append(_NO_FRESHNESS)
        else:
            with draft.log.step("report_data", "REPORT_DATA is the value we asked for"):
                _require_report_data(claims, expected_report_data, kind.report_data_bytes)
        draft.apply_policy()
    except AttestationError as err:
        return draft.reject(err)
    draft.not_covered.append(NO_KEYSET)
    return draft.accept()


def reject_unread(
    err: AttestationError, evidence: bytes, *, policy: AppraisalPolicy, at: datetime
) -> AttestationResult:
    """The verdict on Evidence that could not even be read."""
    return Draft(policy=policy, at=at, evidence_sha256=sha256_hex(evidence)).reject(err)


def require_profile(policy: AppraisalPolicy, profile: str) -> None:
    """The policy accepts sessions bound by this convention.

    Raises: PolicyViolation("evidence_refused").
    """
    if profile not in policy.profiles:
        want = ", ".join(sorted(policy.profiles))
        raise PolicyViolation("evidence_refused", f"binding profile is {profile}, want {want}")


def require_parts(policy: AppraisalPolicy, *, has_gpu: bool, has_nras: bool) -> None:
    """Beside the CPU's: every part that the policy requires came, and none that it refuses.

    Raises: PolicyViolation: evidence_missing, evidence_refused.
    """
    require_needed(policy.gpu, "GPU evidence", is_there=has_gpu)
    require_needed(policy.nras, "NRAS token", is_there=has_nras)


def require_needed(need: Need, what: str, *, is_there: bool) -> None:
    """What the policy requires is there and what it refuses is not.

    Raises: PolicyViolation: evidence_missing, evidence_refused.
    """
    if need == "required" and not is_there:
        raise PolicyViolation("evidence_missing", f"the policy requires {what} and none came")
    if need == "refused" and is_there:
        raise PolicyViolation("evidence_refused", f"the policy takes no {what} and some came")


def require_label(kind: EvidenceKind, claims: CpuClaims) -> None:
    """The Evidence is of the TEE that its label names, under the kind of root it promises.

    A root that the caller added may stand in for a vendor's, never for the fake one.

    Raises: EndorsementMismatch("tee_type").
    """
    is_root_right = claims.anchor.kind == kind.anchor_kind or (
        (claims.anchor.kind, kind.anchor_kind) == ("foreign", "vendor")
    )
    if claims.tee != kind.tee or not is_root_right:
        raise EndorsementMismatch(
            "tee_type",
            f"labelled {kind.anchor_kind} {kind.tee}, is {claims.anchor.kind} {claims.tee}",
        )


def _current_keyset(bundle: EvidenceBundle, at: datetime) -> Keyset:
    keyset = parse_keyset(bundle.keyset)
    if at >= keyset.not_after:
        raise StaleEvidence("keyset_expired", f"keyset ended {format_time(keyset.not_after)}")
    return keyset


def _require_tls_key(keyset: Keyset, seen: bytes) -> None:
    if seen.hex() not in {key.spki_sha256 for key in keyset.tls}:
        raise StaleEvidence("channel_binding", "the TLS key in use is not in the attested keyset")


def _require_report_data(claims: CpuClaims, expected: bytes, num_bytes: int) -> None:
    if len(expected) != num_bytes:
        raise MalformedEvidence(
            "nonce_length", f"report data: {len(expected)} bytes, want {num_bytes}"
        )
    if not hmac.compare_digest(expected, claims.report_data):
        raise StaleEvidence("report_data", "REPORT_DATA is not the value we asked for")


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

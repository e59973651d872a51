"""Do CPU, GPUs, token and keys belong to one session?  Sessions bound by a peer's own convention.

A Session is everything one server sent, parsed and not verified.  ``appraise_session`` verifies
each part, compares what the server says of itself with what the RelyingParty knows, and recomputes
REPORT_DATA by the named profile.  Our own bundles are ``appraise``'s.
"""

import hmac
from dataclasses import dataclass, replace
from datetime import datetime

from attestation.anchors import TrustAnchors
from attestation.appraise import require_label, require_parts, require_profile
from attestation.devices import verify_gpus, verify_token
from attestation.draft import Draft, sha256_hex
from attestation.errors import AttestationError, MalformedEvidence, StaleEvidence
from attestation.model import AttestationResult, GpuEndorsements, GpuEntry, Nonce
from attestation.nras.jwks import Jwks
from attestation.policy import AppraisalPolicy
from attestation.profiles import BindingProfile, SessionFacts, binding_profile
from attestation.registry import evidence_kind

_TLS_SENT = "channel: the TLS key is the one in the document; compare it with your connection's"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One server's Evidence under ``profile``; ``stated`` is what it says of itself.

    ``certificate_key_sha256`` is the key of the certificate it sent. ``gpu_sha256`` and
    ``switch_sha256`` are over the evidence as received, None when there is none.
    """

    profile: str
    label: str
    cpu: bytes
    gpu: tuple[GpuEntry, ...]
    stated: SessionFacts
    certificate_key_sha256: bytes | None
    gpu_sha256: bytes | None
    switch_sha256: bytes | None = None
    nras: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEndorsements:
    """What the RelyingParty fetched for a session: ``cpu`` is the CPU family's own kind."""

    cpu: object = None
    gpu: GpuEndorsements | None = None
    jwks: Jwks | None = None


def appraise_session(
    session: Session,
    *,
    nonce: Nonce,
    tls_key_sha256: bytes | None,
    endorsements: SessionEndorsements,
    policy: AppraisalPolicy,
    anchors: TrustAnchors,
    at: datetime,
) -> AttestationResult:
    """The verdict on a session; bad Evidence never raises.

    ``tls_key_sha256`` is the key that the RelyingParty's own connection used; None takes that of
    the certificate in the document and says so under not_covered. The keys it seals to or checks
    signatures with are the stated ones, which REPORT_DATA must vouch for.
    """
    draft = Draft(policy=policy, at=at, evidence_sha256=sha256_hex(session.cpu))
    try:
        with draft.log.step("evidence_kind", "the policy takes Evidence of these kinds"):  # 1
            profile = binding_profile(session.profile)
            kind = evidence_kind(session.label)
            require_profile(policy, profile.name)
            require_parts(policy, has_gpu=bool(session.gpu), has_nras=session.nras is not None)
        cpu = draft.verify_cpu(session.cpu, endorsements.cpu, anchors, kind)  # 2
        with draft.log.step("evidence_label", "the Evidence is what its label says"):
            require_label(kind, cpu)
        with draft.log.step("nonce", "the session answers our nonce"):  # 3
            facts = _known_facts(session, nonce, tls_key_sha256)
        device_nonce = profile.gpu_nonce(facts)
        system = None
        if session.gpu:  # 4
            system = verify_gpus(
                draft,
                session.gpu,
                nonce=device_nonce,
                anchors=anchors,
                endorsements=endorsements.gpu,
            )
        if session.nras is not None:  # 5
            verify_token(
                draft, session.nras, nonce=device_nonce, jwks=endorsements.jwks, system=system
            )
        with draft.log.step("channel", "the TLS key is the session's own"):  # 6
            _require_same_key(session, facts)
        with draft.log.step("gpu_evidence", "the GPU evidence is what the session states"):  # 7
            _require_same_digests(session)
        with draft.log.step("binding", f"REPORT_DATA vouches for it all by {profile.name}"):  # 8
            _require_bound(profile, facts, cpu.report_data)
        draft.apply_policy()  # 9
    except AttestationError as err:
        return draft.reject(err)
    draft.claims["binding_profile"] = profile.name
    draft.not_covered.extend(profile.not_covered)
    if tls_key_sha256 is None:
        draft.not_covered.append(_TLS_SENT)
    return draft.accept()


def _known_facts(session: Session, nonce: Nonce, tls_key_sha256: bytes | None) -> SessionFacts:
    """The stated facts, with everything that we know better put in their place."""
    stated = session.stated
    if stated.nonce is not None and not hmac.compare_digest(stated.nonce, nonce):
        raise StaleEvidence("nonce_mismatch", "the session answers another nonce")
    return replace(
        stated,
        nonce=nonce,
        tls_key_sha256=tls_key_sha256 or session.certificate_key_sha256 or stated.tls_key_sha256,
        gpu_sha256=session.gpu_sha256,
        switch_sha256=session.switch_sha256,
    )


def _require_same_key(session: Session, facts: SessionFacts) -> None:
    stated = session.stated.tls_key_sha256
    if stated is None:
        return  # the profile then either needs none or fails for want of it
    known = facts.tls_key_sha256
    if known is None or not hmac.compare_digest(stated, known):
        raise StaleEvidence("channel_binding", "the session states another TLS key")


def _require_same_digests(session: Session) -> None:
    pairs = (
        (session.stated.gpu_sha256, session.gpu_sha256),
        (session.stated.switch_sha256, session.switch_sha256),
    )
    if any(stated != observed for stated, observed in pairs):
        raise StaleEvidence("gpu_evidence_hash", "the session states other GPU evidence")


def _require_bound(profile: BindingProfile, facts: SessionFacts, report_data: bytes) -> None:
    expected = profile.report_data(facts)
    if len(expected) != len(report_data):
        raise MalformedEvidence("format", f"REPORT_DATA: {len(report_data)} bytes")
    num = profile.num_bound_bytes
    if not hmac.compare_digest(expected[:num], report_data[:num]):
        raise StaleEvidence("channel_binding", "REPORT_DATA vouches for other keys than these")

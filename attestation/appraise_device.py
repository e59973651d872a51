"""May these GPUs, or NVIDIA's answer about them, be relied on by themselves?

Without the CPU TEE that presents them they say nothing about a guest: for looking at one part.
"""

from collections.abc import Sequence
from datetime import datetime

from attestation.anchors import TrustAnchors
from attestation.appraise import require_parts
from attestation.devices import verify_gpus, verify_token
from attestation.draft import Draft, sha256_hex
from attestation.errors import AttestationError
from attestation.model import AttestationResult, GpuEndorsements, GpuEntry
from attestation.nras.jwks import Jwks
from attestation.policy import AppraisalPolicy

_NO_CPU = "cpu: no CPU TEE vouches for the machine that these devices are in"


def appraise_gpus(
    entries: Sequence[GpuEntry],
    *,
    nonce: bytes,
    policy: AppraisalPolicy,
    anchors: TrustAnchors,
    at: datetime,
    endorsements: GpuEndorsements | None = None,
) -> AttestationResult:
    """The verdict on devices that were asked with ``nonce``, 32 bytes as the reports hold them."""
    digest = sha256_hex(b"".join(entry.report for entry in entries))
    draft = Draft(policy=policy, at=at, evidence_sha256=digest)
    try:
        with draft.log.step("evidence_kind", "the policy takes GPU evidence"):
            require_parts(policy, has_gpu=bool(entries), has_nras=False)
        verify_gpus(draft, entries, nonce=nonce, anchors=anchors, endorsements=endorsements)
        draft.apply_policy()
    except AttestationError as err:
        return draft.reject(err)
    draft.not_covered.append(_NO_CPU)
    return draft.accept()


def appraise_token(
    eat: bytes,
    jwks: Jwks | None,
    *,
    nonce: bytes,
    policy: AppraisalPolicy,
    at: datetime,
) -> AttestationResult:
    """The verdict on NRAS's detached EAT about devices that were asked with ``nonce``."""
    draft = Draft(policy=policy, at=at, evidence_sha256=sha256_hex(eat))
    try:
        with draft.log.step("evidence_kind", "the policy takes NRAS tokens"):
            require_parts(policy, has_gpu=False, has_nras=True)
        verify_token(draft, eat, nonce=nonce, jwks=jwks, system=None)
        draft.apply_policy()
    except AttestationError as err:
        return draft.reject(err)
    draft.not_covered.append(_NO_CPU)
    return draft.accept()

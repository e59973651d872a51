"""Is this Azure guest's Evidence good and fresh?  An HCL blob with its virtual TPM's own answer.

Without such an answer the blob is bare Evidence as any other: ``appraise_report``.
"""

from datetime import datetime

from attestation.anchors import TrustAnchors
from attestation.appraise import NO_KEYSET, require_parts
from attestation.draft import Draft, sha256_hex
from attestation.errors import AttestationError
from attestation.model import AttestationResult
from attestation.policy import AppraisalPolicy
from attestation.snp.azure import TpmAnswer
from attestation.snp.cpu import verify_azure
from attestation.snp.endorsements import SnpEndorsements


def appraise_azure(
    blob: bytes,
    endorsements: SnpEndorsements | None,
    *,
    answer: TpmAnswer,
    policy: AppraisalPolicy,
    anchors: TrustAnchors,
    at: datetime,
) -> AttestationResult:
    """The verdict on a blob that the TPM key it vouches for made fresh by ``answer``.

    The nonce of the answer is the one the RelyingParty chose. Quoted PCRs are told as claims.
    """
    draft = Draft(policy=policy, at=at, evidence_sha256=sha256_hex(blob))
    try:
        with draft.log.step("evidence_kind", "the policy requires no other Evidence"):
            require_parts(policy, has_gpu=False, has_nras=False)
        claims = verify_azure(
            blob,
            endorsements,
            anchors=draft.narrowed(anchors),
            at=at,
            log=draft.log,
            answer=answer,
        )
        draft.admit_cpu(claims)
        draft.apply_policy()
    except AttestationError as err:
        return draft.reject(err)
    draft.not_covered.append(NO_KEYSET)
    return draft.accept()

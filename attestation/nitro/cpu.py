"""How does an AWS Nitro document become the claims of a CPU TEE?"""

from datetime import datetime

from attestation.anchors import TrustAnchors
from attestation.cache import VerifiedCache
from attestation.checks import CheckLog
from attestation.cpu import CpuClaims
from attestation.nitro.verifier import NitroVerifier


def verify_cpu(
    document: bytes,
    endorsements: object,
    *,
    anchors: TrustAnchors,
    at: datetime,
    log: CheckLog,
    cache: VerifiedCache | None = None,
) -> CpuClaims:
    """The claims of a genuine document, which brings its own endorsements: nothing to remember.

    Its report data is the nonce that it carries, as long as that is.

    Raises: AttestationError.
    """
    claims = NitroVerifier(anchors=anchors).verify(document, at=at, log=log)
    return CpuClaims(
        section="nitro",
        tee="nitro",
        anchor=claims.anchor,
        report_data=claims.document.nonce or b"",
        not_after=claims.not_after,
        facts={"tee": "nitro", **dict(claims.document.fields())},
        verified=claims,
    )

"""How does an SNP report become the claims of a CPU TEE?  A bare one, or one in an Azure blob."""

from dataclasses import replace
from datetime import datetime

from attestation.anchors import TrustAnchors
from attestation.cache import VerifiedCache
from attestation.checks import CheckLog
from attestation.cpu import CpuClaims
from attestation.model import ClaimValue
from attestation.snp.azure import TpmAnswer, parse_hcl, require_runtime, verify_tpm_quote
from attestation.snp.endorsements import SnpEndorsements
from attestation.snp.facts import facts
from attestation.snp.product import MILAN
from attestation.snp.verifier import SnpVerifier

_AZURE = "freshness: on Azure only a TPM quote by the key in the blob could answer a nonce"
_PCRS = "pcrs: what the TPM quoted is told, and compared with no reference values"
_NO_CRL = "revocation: no CRL of AMD's root says that the issuing CA is not revoked"
# The seed of Milan's endorsement keys was extracted in software.  [arXiv 2605.12990]
_MILAN = "product line Milan, whose endorsement keys could be extracted"


def verify_cpu(
    report: bytes,
    endorsements: object,
    *,
    anchors: TrustAnchors,
    at: datetime,
    log: CheckLog,
    cache: VerifiedCache | None = None,
) -> CpuClaims:
    """The claims of a genuine report; endorsements of another family count as none.

    Raises: AttestationError.
    """
    own = endorsements if isinstance(endorsements, SnpEndorsements) else None
    claims = SnpVerifier(anchors=anchors, cache=cache).verify(report, own, at=at, log=log)
    return CpuClaims(
        section="snp",
        tee="snp",
        anchor=claims.anchor,
        report_data=claims.report_data,
        not_after=claims.not_after,
        facts={"tee": "snp", **facts(claims)},
        verified=claims,
        shortfall=_MILAN if claims.product == MILAN else "",
        not_covered=() if claims.is_revocation_checked else (_NO_CRL,),
    )


def verify_azure(
    blob: bytes,
    endorsements: object,
    *,
    anchors: TrustAnchors,
    at: datetime,
    log: CheckLog,
    cache: VerifiedCache | None = None,
    answer: TpmAnswer | None = None,
) -> CpuClaims:
    """The claims of the report inside an HCL blob, once it vouches for the blob's runtime JSON.

    With an ``answer``, once the TPM key that the JSON names gave it; without one freshness is open.

    Raises: AttestationError.
    """
    with log.step("hcl_format", "the blob follows its format"):
        hcl = parse_hcl(blob)
    claims = verify_cpu(hcl.report, endorsements, anchors=anchors, at=at, log=log, cache=cache)
    with log.step("hcl_runtime", "the report vouches for the runtime JSON and its TPM key"):
        runtime = require_runtime(hcl, claims.report_data)
    told: dict[str, ClaimValue] = {"azure_ak_modulus": f"{runtime.ak.n:x}"}
    if answer is not None:
        with log.step("tpm_quote", "that key signed a TPM quote over our nonce"):
            quote = verify_tpm_quote(
                answer.attest, answer.signature, runtime=runtime, nonce=answer.nonce
            ).quote
        told["tpm_nonce"] = quote.extra_data.hex()
        told["tpm_pcrs"] = tuple(str(index) for index in quote.pcrs)
        told["tpm_pcr_digest"] = quote.pcr_digest.hex()
    return replace(
        claims,
        not_covered=(*claims.not_covered, _AZURE if answer is None else _PCRS),
        facts={**claims.facts, **told},
    )

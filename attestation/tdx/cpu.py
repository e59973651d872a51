"""How does an Intel quote become the claims of a CPU TEE?"""

from collections.abc import Mapping
from datetime import datetime

from attestation.anchors import TrustAnchors
from attestation.cache import VerifiedCache
from attestation.checks import CheckLog
from attestation.cpu import CpuClaims
from attestation.model import ClaimValue
from attestation.strict_json import format_time
from attestation.tdx.endorsements import TdxCollateral
from attestation.tdx.quote import TdReport
from attestation.tdx.rules import measurements
from attestation.tdx.verifier import TdxClaims, TdxVerifier


def verify_cpu(
    quote: bytes,
    collateral: object,
    *,
    anchors: TrustAnchors,
    at: datetime,
    log: CheckLog,
    cache: VerifiedCache | None = None,
) -> CpuClaims:
    """The claims of a genuine quote; collateral of another family counts as none.

    Raises: AttestationError.
    """
    own = collateral if isinstance(collateral, TdxCollateral) else None
    claims = TdxVerifier(anchors=anchors, cache=cache).verify(quote, own, at=at, log=log)
    status = claims.tcb.status
    return CpuClaims(
        section="tdx",
        tee=claims.tee,
        anchor=claims.anchor,
        report_data=claims.report_data,
        not_after=claims.not_after,
        facts=_facts(claims),
        verified=claims,
        shortfall="" if status == "UpToDate" else f"TCB status {status}",
    )


def _facts(claims: TdxClaims) -> Mapping[str, ClaimValue]:
    facts: dict[str, ClaimValue] = {
        "tee": claims.tee,
        "fmspc": claims.fmspc.hex(),
        "ppid": claims.ppid.hex(),
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

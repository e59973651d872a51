"""Which workers may be trusted, and why?  The last appraisal of each, and its reason in words."""

from typing import Final

from sqlalchemy import Select, func, select

from telemetry.db.models import AttestationRow

MAX_WORKERS: Final = 200

_BY_TIER: Final = {
    "affirming": "The evidence is genuine, fresh and accepted by the policy.",
    "warning": "The evidence is genuine, but the policy accepts it only with a warning.",
    "contraindicated": "The evidence was rejected.",
    "none": "The worker has not been appraised.",
}
_SIMULATED: Final = "The evidence is simulated: it proves the protocol, not the hardware."
_EXPIRED: Final = "The last appraisal has expired, and no newer one is known."
_BY_CODE: Final = {
    "certificate_revoked": "A certificate of the evidence's chain has been revoked.",
    "certificate_time": "A certificate of the evidence's chain is outside its validity.",
    "channel_binding": "The evidence does not belong to the key that was offered.",
    "collateral_expired": "The vendor's collateral has expired.",
    "crl_expired": "The vendor's revocation list has expired.",
    "crl_missing": "The vendor's revocation list is missing.",
    "debug_enabled": "The worker runs in debug mode, so its memory is open to its host.",
    "endorsement_missing": "The vendor's endorsement of this chip is missing.",
    "format": "The evidence is malformed.",
    "key_config_error": "The key that was offered is not in the attested keyset.",
    "measurement_mismatch": "The worker's measurement is not one the policy expects.",
    "nonce_mismatch": "The evidence is not fresh: it answers another nonce.",
    "quote_signature": "The signature of the quote is wrong.",
    "replica_mismatch": "The worker attests to be another one than before, or one that exists.",
    "report_data": "The evidence is bound to other data than the worker's keys.",
    "tcb_status": "The platform's firmware level is not one the policy accepts.",
    "untrusted_root": "The evidence ends in a root that the policy does not trust.",
    "upstream_unavailable": "The worker could not be reached.",
}


def latest_appraisals(*, now_ns: int, limit: int = MAX_WORKERS) -> Select[AttestationRow]:
    """The last appraisal of each worker, by worker; what lies in the future is not the last."""
    newest_first = (AttestationRow.appraised_ns.desc(), AttestationRow.span_id)
    ranked = select(
        AttestationRow.trace_id,
        AttestationRow.span_id,
        func.row_number()
        .over(partition_by=AttestationRow.worker_id, order_by=newest_first)
        .label("rank"),
    ).where(AttestationRow.appraised_ns <= now_ns)
    newest = ranked.subquery()
    is_newest = (
        (AttestationRow.trace_id == newest.c.trace_id)
        & (AttestationRow.span_id == newest.c.span_id)
        & (newest.c.rank == 1)
    )
    by_worker = select(AttestationRow).join(newest, is_newest).order_by(AttestationRow.worker_id)
    return by_worker.limit(limit)


def reason(
    *, tier: str, code: str | None, simulated: bool | None, not_after_ns: int | None, now_ns: int
) -> str:
    """One plain sentence from a closed vocabulary; a rejection outranks expiry, expiry the rest."""
    if code is not None and tier not in ("affirming", "warning"):
        return _BY_CODE.get(code, _BY_TIER["contraindicated"])
    if tier in ("affirming", "warning") and not_after_ns is not None and not_after_ns <= now_ns:
        return _EXPIRED
    if simulated and tier in ("affirming", "warning"):
        return _SIMULATED
    return _BY_TIER.get(tier, _BY_TIER["none"])

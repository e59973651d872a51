"""Does this receipt speak of what I sent and what I got, and has an attested gateway signed it?

Every check has its outcome, like those of a verdict; nothing stops at the first that fails.
"""

import hashlib
from collections.abc import Sequence

from attestation.errors import AttestationError
from attestation.keyset import ReceiptKey
from attestation.model import Check
from attestation.receipt import SignedReceipt, response_digest

MISMATCH = "receipt_digest_mismatch"


def check_receipt(
    signed: SignedReceipt,
    keys: Sequence[ReceiptKey],
    *,
    request: bytes | None = None,
    response: bytes | None = None,
) -> tuple[Check, ...]:
    """``keys`` are those of an attested keyset; a body that is not given is not compared."""
    return (
        _signature(signed, keys),
        _request(signed, request),
        _response(signed, response),
    )


def failing_code(checks: Sequence[Check]) -> str | None:
    """That of the first check that failed; None when the receipt may be believed."""
    return next((check.code for check in checks if check.outcome == "fail"), None)


def _signature(signed: SignedReceipt, keys: Sequence[ReceiptKey]) -> Check:
    try:
        signed.verify(keys)
    except AttestationError as err:
        return Check(name="signature", outcome="fail", code=err.code, reason=str(err))
    return Check(
        name="signature", outcome="pass", reason=f"by the attested key {signed.receipt.kid}"
    )


def _request(signed: SignedReceipt, body: bytes | None) -> Check:
    said = signed.receipt.request_sha256
    if body is None:
        return Check(name="request", outcome="not_applicable", reason="not compared")
    if said is None:
        return Check(
            name="request", outcome="fail", code=MISMATCH, reason="it was not read to its end"
        )
    return _compared("request", said, hashlib.sha256(body).hexdigest())


def _response(signed: SignedReceipt, body: bytes | None) -> Check:
    if body is None:
        return Check(name="response", outcome="not_applicable", reason="not compared")
    got = response_digest(body, is_streamed=signed.receipt.is_streamed)
    return _compared("response", signed.receipt.response_sha256, got)


def _compared(name: str, said: str, got: str) -> Check:
    if said == got:
        return Check(name=name, outcome="pass", reason=f"sha256 {got}")
    reason = f"the receipt says sha256 {said}, the file has {got}"
    return Check(name=name, outcome="fail", code=MISMATCH, reason=reason)

"""Does a receipt survive its journey, and does one changed bit of it not?"""

import hashlib
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from attestation.binding import jcs
from attestation.errors import AttestationError, MalformedEvidence
from attestation.receipt import (
    MAX_TEXT_CHARS,
    AuditAnchor,
    Receipt,
    Revocation,
    SignedReceipt,
    receipt_key,
    response_digest,
    sign_receipt,
    signed_receipt_json,
)

KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
ATTESTED = receipt_key(KEY.public_key())
DIGEST = "ab" * 32
RECEIPT = Receipt(
    id="0" * 32,
    kid=ATTESTED.kid,
    replica="gateway",
    endpoint="/v1/chat/completions",
    started_at=datetime(2026, 1, 1, tzinfo=UTC),
    duration_ms=12,
    outcome="complete",
    status=200,
    code=None,
    is_streamed=True,
    request_sha256=DIGEST,
    response_sha256=DIGEST,
    bytes_sent=5,
    model="m",
    sampling_sha256=DIGEST,
    worker="worker-0",
    weights_sha256=DIGEST,
    lease_id="v-1",
    worker_keyset_sha256=DIGEST,
    policy_sha256=DIGEST,
    revocation=Revocation(code="debug_enabled", verdict_class="A"),
    audit=AuditAnchor(seq=7, sha256=DIGEST),
)
SIGNED = sign_receipt(RECEIPT, KEY)


def test_a_receipt_reads_back_and_verifies() -> None:
    parsed = SignedReceipt.parse(SIGNED.to_json())
    assert parsed == SIGNED
    assert signed_receipt_json(RECEIPT, KEY) == SIGNED.to_json()
    assert parsed.verify([ATTESTED]) == RECEIPT


def test_a_refusal_that_knows_nothing_reads_back() -> None:
    bare = replace(
        RECEIPT,
        outcome="refused",
        code="invalid_json",
        request_sha256=None,
        model=None,
        sampling_sha256=None,
        worker=None,
        weights_sha256=None,
        lease_id=None,
        worker_keyset_sha256=None,
        revocation=None,
        audit=None,
    )
    assert SignedReceipt.parse(sign_receipt(bare, KEY).to_json()).verify([ATTESTED]) == bare


def test_the_signature_is_over_the_canonical_bytes_alone() -> None:
    """Any tool for JCS and Ed25519 can check it."""
    value = json.loads(SIGNED.to_json())
    KEY.public_key().verify(bytes.fromhex(value["signature"]), jcs(value["receipt"]))
    assert value["receipt"]["purpose"] == "starshade/receipt/v1"


def test_the_thumbprint_of_rfc_8037() -> None:
    private = Ed25519PrivateKey.from_private_bytes(
        bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    )
    assert receipt_key(private.public_key()).kid == "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"


@given(st.integers(0, len(SIGNED.to_json()) * 8 - 1))
def test_no_bit_may_change(bit: int) -> None:
    data = bytearray(SIGNED.to_json())
    data[bit // 8] ^= 1 << bit % 8
    try:
        parsed = SignedReceipt.parse(bytes(data))
    except MalformedEvidence:
        return
    if parsed == SIGNED:  # a hex digit's case
        return
    with pytest.raises(AttestationError) as caught:
        parsed.verify([ATTESTED])
    assert caught.value.code in {"receipt_signature", "unknown_kid"}


def test_another_key_of_the_same_name_does_not_do() -> None:
    other = receipt_key(Ed25519PrivateKey.from_private_bytes(bytes(31) + b"\1").public_key())
    with pytest.raises(AttestationError) as caught:
        SIGNED.verify([replace(other, kid=ATTESTED.kid)])
    assert caught.value.code == "receipt_signature"
    with pytest.raises(AttestationError) as caught:
        SIGNED.verify([other])
    assert caught.value.code == "unknown_kid"


BAD: dict[str, Any] = {
    "purpose": "starshade/receipt/v2",
    "outcome": "fine",
    "streamed": 1,
    "status": 600,
    "bytes_sent": -1,
    "duration_ms": "1",
    "request_sha256": "AB" * 32,
    "model": "m" * (MAX_TEXT_CHARS + 1),
    "revocation": {"code": "x", "class": "C"},
    "audit": {"seq": 1},
    "started_at": "2026-01-01T00:00:00+00:00",
}


@pytest.mark.parametrize("member", BAD)
def test_a_member_out_of_bounds_is_malformed(member: str) -> None:
    value = json.loads(SIGNED.to_json())
    value["receipt"][member] = BAD[member]
    with pytest.raises(MalformedEvidence):
        SignedReceipt.parse(json.dumps(value).encode())


def test_unknown_and_missing_members_are_malformed() -> None:
    value = json.loads(SIGNED.to_json())
    with pytest.raises(MalformedEvidence):
        SignedReceipt.parse(json.dumps({**value, "note": 1}).encode())
    del value["receipt"]["audit"]
    with pytest.raises(MalformedEvidence):
        SignedReceipt.parse(json.dumps(value).encode())


def test_padding_of_a_stream_changes_no_digest() -> None:
    events = b"data: a\n\ndata: b\n\n"
    padded = b": xx\n\ndata: a\n\n:y\ndata: b\n\n: zzz\n\n"
    expected = hashlib.sha256(events).hexdigest()
    assert response_digest(events, is_streamed=True) == expected
    assert response_digest(padded, is_streamed=True) == expected
    assert response_digest(padded, is_streamed=False) != expected

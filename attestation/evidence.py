"""How does an Attester put its Evidence together?  Nonce and keyset in, one bound bundle out."""

from datetime import datetime
from typing import Protocol

from attestation.binding import gpu_digest, keyset_digest, report_data, statement_bytes
from attestation.keyset import parse_keyset
from attestation.model import EvidenceBundle, Nonce
from attestation.strict_json import JsonObject
from attestation.tdx.endorsements import TdxCollateral


class QuotingTee(Protocol):
    """What makes quotes: a device, or FakeTee."""

    @property
    def tee(self) -> str:
        """The label of its Evidence, as ``registry`` knows it."""

    def attest(self, report_data: bytes, *, at: datetime) -> tuple[bytes, TdxCollateral | None]:
        """(quote over the 64 bytes, collateral when the device has it)."""


def make_bundle(tee: QuotingTee, nonce: Nonce, keyset: JsonObject, at: datetime) -> EvidenceBundle:
    """Evidence that answers ``nonce`` and vouches for ``keyset``, without GPUs.

    Raises: MalformedEvidence("format"): not a keyset.
    """
    parse_keyset(keyset)
    statement = statement_bytes(
        nonce=nonce, keyset_sha256=keyset_digest(keyset), gpu_sha256=gpu_digest(())
    )
    quote, collateral = tee.attest(report_data(statement), at=at)
    return EvidenceBundle(
        tee=tee.tee,
        quote=quote,
        event_log=None,
        statement=statement.decode("utf-8"),
        keyset=keyset,
        gpu=(),
        collateral=collateral,
    )

"""How does an Attester put its Evidence together?  Nonce and keyset in, one bound bundle out."""

from datetime import datetime
from typing import Protocol, runtime_checkable

from attestation.binding import gpu_digest, gpu_nonce, keyset_digest, report_data, statement_bytes
from attestation.keyset import parse_keyset
from attestation.model import EvidenceBundle, GpuEntry, Nonce
from attestation.snp.endorsements import SnpEndorsements
from attestation.strict_json import JsonObject
from attestation.tdx.endorsements import TdxCollateral


class QuotingTee(Protocol):
    """What makes quotes: a device, or FakeTee."""

    @property
    def tee(self) -> str:
        """The label of its Evidence, as ``registry`` knows it."""

    def attest(
        self, report_data: bytes, *, at: datetime
    ) -> tuple[bytes, TdxCollateral | SnpEndorsements | None]:
        """(quote over the 64 bytes, endorsements when the device has them)."""


@runtime_checkable
class EquippedTee(Protocol):
    """A QuotingTee of a machine that may have GPUs and a boot event log."""

    def gpus(self, nonce: bytes, /) -> tuple[GpuEntry, ...]:
        """Evidence of every GPU over the nonce of 32 bytes, in the order of their indexes."""

    def event_log(self) -> str | None:
        """The log that the quote's registers sum up."""


def make_bundle(tee: QuotingTee, nonce: Nonce, keyset: JsonObject, at: datetime) -> EvidenceBundle:
    """Evidence that answers ``nonce`` and vouches for ``keyset``.

    Steps: 1. the GPUs answer a nonce made of both; 2. the statement names all three; 3. the quote
    is over the statement.

    Raises: MalformedEvidence("format"): not a keyset; AttestationError: what the device raises.
    """
    parse_keyset(keyset)
    keyset_sha256 = keyset_digest(keyset)
    gpus: tuple[GpuEntry, ...] = ()
    event_log = None
    if isinstance(tee, EquippedTee):
        gpus, event_log = tee.gpus(gpu_nonce(nonce, keyset_sha256)), tee.event_log()  # 1
    statement = statement_bytes(  # 2
        nonce=nonce, keyset_sha256=keyset_sha256, gpu_sha256=gpu_digest(gpus)
    )
    quote, collateral = tee.attest(report_data(statement), at=at)  # 3
    return EvidenceBundle(
        tee=tee.tee,
        quote=quote,
        event_log=event_log,
        statement=statement.decode("utf-8"),
        keyset=keyset,
        gpu=gpus,
        collateral=collateral,
    )

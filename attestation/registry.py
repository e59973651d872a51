"""Which Verifier appraises which Evidence?  By the verifier's own table, never by the Evidence.

A bundle's ``tee`` only names an entry here. ``fake-tdx`` is the same Verifier: what makes Evidence
simulated is the root it ends in, and each label allows one kind of root.
"""

import importlib
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, cast

from attestation.anchors import AnchorKind, TrustAnchors
from attestation.checks import CheckLog
from attestation.cpu import CpuClaims
from attestation.errors import UnsupportedEvidence


class CpuVerifier(Protocol):
    """Cryptography only; policy comes after it."""

    def __call__(
        self,
        evidence: bytes,
        endorsements: object,
        /,
        *,
        anchors: TrustAnchors,
        at: datetime,
        log: CheckLog,
    ) -> CpuClaims:
        """Raises: AttestationError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceKind:
    """How Evidence with one label is verified, and what its label promises."""

    tee: str
    anchor_kind: AnchorKind
    module: str

    @property
    def verify(self) -> CpuVerifier:
        """The family's ``verify_cpu``, imported when it is first used."""
        return cast("CpuVerifier", importlib.import_module(self.module).verify_cpu)


_KINDS = {
    "tdx": EvidenceKind(tee="tdx", anchor_kind="vendor", module="attestation.tdx.cpu"),
    "sgx": EvidenceKind(tee="sgx", anchor_kind="vendor", module="attestation.tdx.cpu"),
    "fake-tdx": EvidenceKind(tee="tdx", anchor_kind="fake", module="attestation.tdx.cpu"),
}


def evidence_kind(tee: str) -> EvidenceKind:
    """Raises: UnsupportedEvidence("unsupported_tee")."""
    kind = _KINDS.get(tee)
    if kind is None:
        raise UnsupportedEvidence("unsupported_tee", f"bundle: tee is none of {', '.join(_KINDS)}")
    return kind

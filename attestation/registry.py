"""Which Verifier appraises which Evidence?  By the verifier's own table, never by the Evidence.

A bundle's ``tee`` only names an entry here. ``fake-tdx`` is the same Verifier: what makes Evidence
simulated is the root it ends in, and each label allows one kind of root.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from attestation.anchors import AnchorKind, TrustAnchors
from attestation.checks import CheckLog
from attestation.errors import UnsupportedEvidence
from attestation.tdx.endorsements import TdxCollateral
from attestation.tdx.quote import Tee
from attestation.tdx.verifier import TdxClaims, TdxVerifier


class Verifier(Protocol):
    """Cryptography only; policy comes after it."""

    def verify(
        self, quote_bytes: bytes, collateral: TdxCollateral | None, *, at: datetime, log: CheckLog
    ) -> TdxClaims:
        """Raises: AttestationError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceKind:
    """How Evidence with one label is verified, and what its label promises."""

    tee: Tee
    anchor_kind: AnchorKind
    make_verifier: Callable[[TrustAnchors], Verifier]


def _dcap(anchors: TrustAnchors) -> Verifier:
    return TdxVerifier(anchors=anchors)


_KINDS = {
    "tdx": EvidenceKind(tee="tdx", anchor_kind="vendor", make_verifier=_dcap),
    "fake-tdx": EvidenceKind(tee="tdx", anchor_kind="fake", make_verifier=_dcap),
}


def evidence_kind(tee: str) -> EvidenceKind:
    """Raises: UnsupportedEvidence("unsupported_tee")."""
    kind = _KINDS.get(tee)
    if kind is None:
        raise UnsupportedEvidence("unsupported_tee", f"bundle: tee is none of {', '.join(_KINDS)}")
    return kind

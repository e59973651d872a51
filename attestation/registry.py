"""Which Verifier appraises which Evidence?  By the verifier's own table, never by the Evidence.

A bundle's ``tee`` only names an entry here. ``fake-tdx`` is the same Verifier: what makes Evidence
simulated is the root it ends in, and each label allows one kind of root.
"""

import importlib
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, cast

from attestation.anchors import AnchorKind, TrustAnchors
from attestation.cache import VerifiedCache
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
        cache: VerifiedCache | None,
    ) -> CpuClaims:
        """With a ``cache``, what it has seen verified is not verified again.

        Raises: AttestationError.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceKind:
    """How Evidence with one label is verified, and what its label promises."""

    tee: str
    anchor_kind: AnchorKind
    verifier: str  # module:function, imported when it is first used
    report_data_bytes: int = 64

    @property
    def verify(self) -> CpuVerifier:
        """The family's verifier."""
        module, function = self.verifier.split(":")
        return cast("CpuVerifier", getattr(importlib.import_module(module), function))


def _vendor(tee: str, verifier: str, *, report_data_bytes: int = 64) -> EvidenceKind:
    return EvidenceKind(
        tee=tee, anchor_kind="vendor", verifier=verifier, report_data_bytes=report_data_bytes
    )


_DCAP = "attestation.tdx.cpu:verify_cpu"
_KINDS = {
    "tdx": _vendor("tdx", _DCAP),
    "sgx": _vendor("sgx", _DCAP),
    "snp": _vendor("snp", "attestation.snp.cpu:verify_cpu"),
    "azure-snp": _vendor("snp", "attestation.snp.cpu:verify_azure"),
    "nitro": _vendor("nitro", "attestation.nitro.cpu:verify_cpu", report_data_bytes=32),
    "fake-tdx": EvidenceKind(tee="tdx", anchor_kind="fake", verifier=_DCAP),
}
BUNDLE_TEES = ("tdx", "snp", "fake-tdx")  # those whose REPORT_DATA can hold our binding


def evidence_kind(label: str) -> EvidenceKind:
    """Raises: UnsupportedEvidence("unsupported_tee")."""
    kind = _KINDS.get(label)
    if kind is None:
        raise UnsupportedEvidence("unsupported_tee", f"TEE is none of {', '.join(_KINDS)}")
    return kind


def bundle_kind(label: str) -> EvidenceKind:
    """Raises: UnsupportedEvidence("unsupported_tee")."""
    if label not in BUNDLE_TEES:
        raise UnsupportedEvidence(
            "unsupported_tee", f"bundle: tee is none of {', '.join(BUNDLE_TEES)}"
        )
    return evidence_kind(label)

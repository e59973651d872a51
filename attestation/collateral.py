"""Where does the collateral for a quote come from?  First get it here, then verify it elsewhere.

What a source returns is unverified; a stale or forged file is found by the appraisal.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from attestation.errors import UntrustedEndorsement
from attestation.tdx.endorsements import MAX_COLLATERAL_BYTES, TdxCollateral, parse_collateral


class CollateralSource(Protocol):
    """One place to look; ``quote`` says for which platform."""

    def find(self, quote: bytes) -> TdxCollateral:
        """Raises: UntrustedEndorsement("endorsement_missing"); MalformedEvidence("format")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCollateral:
    """Collateral in one JSON file, for whichever quote."""

    path: Path

    def find(self, quote: bytes) -> TdxCollateral:
        """Raises: UntrustedEndorsement("endorsement_missing"); MalformedEvidence("format")."""
        try:
            with self.path.open("rb") as file:
                data = file.read(MAX_COLLATERAL_BYTES + 1)
        except OSError as err:
            raise UntrustedEndorsement(
                "endorsement_missing", f"collateral: cannot read {self.path}: {err.strerror}"
            ) from err
        return parse_collateral(data)


@dataclass(frozen=True, slots=True, kw_only=True)
class BundledCollateral:
    """Collateral that came with the Evidence, which is as good as any other: it is all signed."""

    collateral: TdxCollateral | None

    def find(self, quote: bytes) -> TdxCollateral:
        """Raises: UntrustedEndorsement("endorsement_missing")."""
        if self.collateral is None:
            raise UntrustedEndorsement("endorsement_missing", "no collateral came with the quote")
        return self.collateral

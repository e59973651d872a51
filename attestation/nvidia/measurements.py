"""Does the device run what NVIDIA vouches for?  [NVIDIA RIM; DMTF DSP0274 sec. 10.11.1]

A report's measurement blocks are compared with the active entries of verified RIMs. RIM index i is
block i + 1; a block matches when its size and one of the alternatives are equal.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from attestation.anchors import Anchor
from attestation.errors import EndorsementMismatch, PolicyViolation, UntrustedEndorsement
from attestation.nvidia.chain import DeviceIdentity
from attestation.nvidia.report import DeviceReport
from attestation.nvidia.rim import RimEntry, RimKind, VerifiedRim, require_rim
from attestation.nvidia.rim_service import driver_rim_id, switch_rim_id, vbios_rim_id

NVDEC0_INDEX = 35  # its measurement is not defined while the decoder NVDEC0 is off
_SHOWN_HEX_DIGITS = 16
_SHOWN_MISMATCHES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedRims:
    """Reference values for one device: driver and VBIOS of a GPU, the BIOS of a switch."""

    driver: VerifiedRim | None
    firmware: VerifiedRim | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """One block that is not what a RIM expects; ``observed`` is None where there is no block."""

    index: int
    source: RimKind
    observed: bytes | None
    expected: tuple[bytes, ...]

    def __str__(self) -> str:
        """Index, source and both values, the values shortened."""
        observed = "no block" if self.observed is None else _shown(self.observed)
        expected = " or ".join(_shown(value) for value in self.expected)
        return f"{self.source} RIM index {self.index}: got {observed}, want {expected}"


class MeasurementMismatch(PolicyViolation):
    """Genuine measurements that are not the expected ones; ``mismatches`` has them all."""

    def __init__(self, mismatches: Sequence[Mismatch]) -> None:
        shown = "; ".join(str(mismatch) for mismatch in mismatches[:_SHOWN_MISMATCHES])
        num_more = len(mismatches) - _SHOWN_MISMATCHES
        super().__init__("measurement_mismatch", shown + f"; {num_more} more" * (num_more > 0))
        self.mismatches = tuple(mismatches)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedMeasurements:
    """Made by ``require_match`` alone: every active entry of every RIM given matched.

    ``anchors`` are the roots that vouch for the reference values.
    """

    num_matched: int
    anchors: tuple[Anchor, ...]
    not_after: datetime


def rim_ids(identity: DeviceIdentity, report: DeviceReport) -> Mapping[RimKind, str]:
    """Under which ids the RIM service has what this device needs.

    Raises: MalformedEvidence("format"): the report does not name its board.
    """
    opaque = report.opaque
    if identity.arch == "LS10":
        return {"switch": switch_rim_id(opaque.vbios_version)}
    return {
        "driver": driver_rim_id(identity.arch, opaque.driver_version or "", chip=opaque.chip_info),
        "vbios": vbios_rim_id(
            project=opaque.project or "",
            project_sku=opaque.project_sku or "",
            chip_sku=opaque.chip_sku or "",
            vbios_version=opaque.vbios_version,
        ),
    }


def require_complete(rims: VerifiedRims, identity: DeviceIdentity) -> None:
    """Every RIM that this kind of device needs is at hand; no other version's stands in for it.

    Raises: UntrustedEndorsement("endorsement_missing").
    """
    for kind, rim in _slots(rims, identity):
        if rim is None:
            raise UntrustedEndorsement("endorsement_missing", f"{identity.arch}: no {kind} RIM")


def require_match(
    identity: DeviceIdentity, report: DeviceReport, rims: VerifiedRims
) -> MatchedMeasurements:
    """Of the RIMs that are at hand: see ``require_complete``.

    Steps: 1. each RIM is what it is given as, for this chip; 2. no index is active in two;
    3. every active entry matches; 4. each RIM is for the version that runs.

    Raises: EndorsementMismatch: rim_kind (1), index_conflict (2), rim_version (4);
    MeasurementMismatch (3), before 4 because it says more; UntrustedEndorsement:
    endorsement_missing: nothing to compare with.
    """
    given = [(kind, rim) for kind, rim in _slots(rims, identity) if rim is not None]
    for kind, rim in given:  # 1
        require_rim(rim, kind=kind, product=_product(identity, report), version=rim.version)
    _require_no_conflict([rim for _, rim in given])  # 2
    is_skipped = report.opaque.is_nvdec0_enabled is False
    expected = [
        (rim, entry)
        for _, rim in given
        for entry in rim.active
        if not (is_skipped and entry.index == NVDEC0_INDEX)
    ]
    mismatches = [
        Mismatch(
            index=entry.index,
            source=rim.kind,
            observed=_observed(report, entry.index),
            expected=entry.alternatives,
        )
        for rim, entry in expected
        if not _is_match(_observed(report, entry.index), entry)
    ]
    if mismatches:  # 3
        raise MeasurementMismatch(mismatches)
    if not expected:
        raise UntrustedEndorsement("endorsement_missing", f"{identity.arch}: no reference values")
    for kind, rim in given:  # 4
        require_rim(rim, kind=kind, product=rim.product, version=_version(report, kind))
    return MatchedMeasurements(
        num_matched=len(expected),
        anchors=tuple(rim.chain.anchor for _, rim in given),
        not_after=min(rim.not_after for _, rim in given),
    )


def _slots(
    rims: VerifiedRims, identity: DeviceIdentity
) -> tuple[tuple[RimKind, VerifiedRim | None], ...]:
    """What each given RIM is given as."""
    if identity.kind == "gpu":
        return (("driver", rims.driver), ("vbios", rims.firmware))
    if rims.driver is not None:
        raise EndorsementMismatch("rim_kind", "a driver RIM for a switch, which runs none")
    return (("switch", rims.firmware),)


def _product(identity: DeviceIdentity, report: DeviceReport) -> str:
    """The chip as RIMs name it: what the report says it is, else what its certificates say."""
    return report.opaque.chip_info or identity.chip


def _version(report: DeviceReport, kind: RimKind) -> str:
    if kind == "driver":
        return report.opaque.driver_version or ""
    return report.opaque.vbios_version


def _require_no_conflict(rims: Sequence[VerifiedRim]) -> None:
    """Two golden values for one block would leave it to their order which one counts."""
    seen: set[int] = set()
    for rim in rims:
        active = {entry.index for entry in rim.active}
        if conflict := seen & active:
            raise EndorsementMismatch(
                "index_conflict", f"index {min(conflict)} is active in more than one RIM"
            )
        seen |= active


def _observed(report: DeviceReport, index: int) -> bytes | None:
    return report.measurements[index] if index < len(report.measurements) else None


def _is_match(observed: bytes | None, entry: RimEntry) -> bool:
    return (
        observed is not None
        and len(observed) == entry.size_bytes
        and observed in entry.alternatives
    )


def _shown(value: bytes) -> str:
    return value.hex()[:_SHOWN_HEX_DIGITS]

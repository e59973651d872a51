"""Is what genuine GPUs claim good enough?  One small class per rule, one question each.

Devtools mode is in no field of a report: a GPU in it measures otherwise, so ``measurements`` is the
rule that refuses it.
"""

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta

from attestation.errors import PolicyCode, PolicyViolation, UntrustedEndorsement
from attestation.nvidia.ocsp import NO_GRACE, VerifiedOcsp
from attestation.nvidia.topology import MAX_DEVICES, GpuSystem
from attestation.policy_table import PolicyTable, in_form
from attestation.rules import (
    EndingRule,
    LenientRule,
    Observed,
    Rule,
    ValuesAllowed,
    end_of_age,
    listed,
)

ARCHITECTURES = ("HOPPER", "BLACKWELL")
MODES = ("spt", "mpt", "ppcie", "unstated")
MAX_OCSP_AGE_S = 24 * 3600  # no answer is accepted longer than NVIDIA's own validity
MAX_OCSP_GRACE_S = 14 * MAX_OCSP_AGE_S  # a fortnight of a responder that does not answer
_SWITCH = "LS10"
_DRIVER_VERSION = re.compile(r"\d{1,4}(\.\d{1,4}){1,3}")
_VBIOS_VERSION = re.compile(r"[0-9a-f]{2}(\.[0-9a-f]{2}){4}")
_UEID = re.compile(r"[1-9]\d{0,49}")

Version = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchitectureAllowed(ValuesAllowed[GpuSystem]):
    """Every GPU is of an architecture that the policy names."""

    name: str = "gpu_arch"
    passed: str = "the policy accepts these GPUs' architecture"
    code: PolicyCode = "gpu_arch"

    def observe(self, claims: GpuSystem) -> Observed:
        """The architecture of every GPU."""
        for gpu in claims.gpus:
            yield gpu.arch, f"{gpu.arch}, want {listed(self.allowed)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeAllowed(ValuesAllowed[GpuSystem]):
    """The GPUs are passed to their guest in a way that the policy names."""

    name: str = "gpu_mode"
    passed: str = "the policy accepts how these GPUs are passed to their guest"
    code: PolicyCode = "gpu_mode"

    def observe(self, claims: GpuSystem) -> Observed:
        """The mode of the GPUs, which is one for all."""
        yield claims.mode, f"{claims.mode}, want {listed(self.allowed)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CountAllowed:
    """As many GPUs as the policy expects: one that is left out may be one that is not sound."""

    minimum: int
    maximum: int
    name: str = "gpu_count"
    passed: str = "as many GPUs as the policy expects"

    def require(self, claims: GpuSystem) -> None:
        """Raises: PolicyViolation("gpu_count")."""
        if not self.minimum <= len(claims.gpus) <= self.maximum:
            raise PolicyViolation(
                "gpu_count", f"{len(claims.gpus)} GPUs, want {self.minimum} to {self.maximum}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class FirmwareNamed:
    """Every GPU's report names the firmware that its key was made for; switches never do."""

    name: str = "gpu_fwid"
    passed: str = "every GPU names its firmware"

    def require(self, claims: GpuSystem) -> None:
        """Raises: PolicyViolation("claims")."""
        if any(gpu.report.opaque.fwid is None for gpu in claims.gpus):
            raise PolicyViolation("claims", "a GPU's report names no firmware (driver before 550)")


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimumVersions:
    """Driver and VBIOS are at least these, number by number; ``vbios`` is by architecture."""

    driver: Version
    vbios: Mapping[str, Version]
    name: str = "gpu_versions"
    passed: str = "driver and VBIOS are recent enough"

    def require(self, claims: GpuSystem) -> None:
        """Raises: PolicyViolation("tcb_floor"): too old, or no floor is set for the device."""
        for device in claims.devices:
            opaque, floor = device.report.opaque, self.vbios.get(device.arch)
            if floor is None or _version(opaque.vbios_version, 16) < floor:
                raise PolicyViolation(
                    "tcb_floor", f"{device.arch}: VBIOS {opaque.vbios_version} is not recent enough"
                )
            if device.identity.kind == "gpu" and _version(opaque.driver_version, 10) < self.driver:
                raise PolicyViolation(
                    "tcb_floor", f"{device.arch}: driver {opaque.driver_version} is too old"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAllowed(ValuesAllowed[GpuSystem]):
    """Only devices that the policy lists by ueid: any other may be another machine's."""

    name: str = "gpu_allowed"
    passed: str = "every device is one that the policy lists"
    code: PolicyCode = "platform_not_allowed"

    def observe(self, claims: GpuSystem) -> Observed:
        """The identity of every device."""
        for device in claims.devices:
            yield device.identity.ueid, f"{device.identity.hwmodel} is none of those listed"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementsMatched:
    """Every device was compared with NVIDIA's reference values, and matched."""

    name: str = "measurements"
    passed: str = "every device's measurements are NVIDIA's reference values"

    def require(self, claims: GpuSystem) -> None:
        """Raises: UntrustedEndorsement("endorsement_missing")."""
        if any(device.measurements is None for device in claims.devices):
            raise UntrustedEndorsement("endorsement_missing", "no reference values for a device")


@dataclass(frozen=True, slots=True, kw_only=True)
class RevocationChecked(EndingRule[GpuSystem], LenientRule):
    """NVIDIA answered for every device's certificates, not longer ago than ``max_age``.

    Of an answer that was taken late that is its age when it ended, less than ``grace`` ago.
    """

    max_age: timedelta
    grace: timedelta = NO_GRACE
    name: str = "gpu_revocation"
    passed: str = "NVIDIA's answers on revocation are recent enough"

    def require(self, claims: GpuSystem) -> None:
        """Raises: UntrustedEndorsement: crl_missing, crl_expired."""
        for device in claims.devices:
            if not device.revocation:
                raise UntrustedEndorsement("crl_missing", "no OCSP answers for a device")
            for answer in device.revocation:
                self._require_recent(answer, device.verified_at)

    def end(self, claims: GpuSystem) -> datetime:
        """When the first answer reaches that age, or the end of its grace."""
        answers = [answer for device in claims.devices for answer in device.revocation or ()]
        return min(self._end(answer) for answer in answers)

    def conceded(self) -> tuple[str, ...]:
        """Answers within their grace."""
        grace_s = self.grace // timedelta(seconds=1)
        return (f"an OCSP answer that ended less than {grace_s} s ago",) if self.grace else ()

    def _require_recent(self, answer: VerifiedOcsp, at: datetime) -> None:
        if answer.is_late and at >= answer.next_update + self.grace:
            raise UntrustedEndorsement("crl_expired", "an OCSP answer is too late")
        aged_until = answer.next_update if answer.is_late else at
        if aged_until - answer.this_update > self.max_age:
            raise UntrustedEndorsement("crl_expired", "an OCSP answer is too old")

    def _end(self, answer: VerifiedOcsp) -> datetime:
        if answer.is_late:
            return answer.next_update + self.grace
        return end_of_age(answer.this_update, self.max_age)


def parse_rules(table: PolicyTable) -> tuple[Rule[GpuSystem], ...]:
    """The rules of a policy's ``nvidia`` table."""
    architectures = table.names("architectures", ARCHITECTURES.__contains__)
    modes = table.names("modes", MODES.__contains__)
    table.choice("devtools", ("refused",))  # no policy can allow it; it is there to be read
    rules: list[Rule[GpuSystem]] = [
        ArchitectureAllowed(allowed=architectures),
        ModeAllowed(allowed=modes),
        _count(table),
        _minimum_versions(table, architectures, modes),
    ]
    if table.choice("fwid", ("required", "may_be_absent")) == "required":
        rules.append(FirmwareNamed())
    if table.has("ueids"):
        rules.append(DeviceAllowed(allowed=table.names("ueids", in_form(_UEID))))
    if table.choice("measurements", ("required", "not_checked")) == "required":
        rules.append(MeasurementsMatched())
    if table.choice("ocsp", ("required", "not_checked")) == "required":
        max_age_s = table.number("max_ocsp_age_s")
        if max_age_s > MAX_OCSP_AGE_S:
            table.problem("max_ocsp_age_s", f"want at most {MAX_OCSP_AGE_S}, NVIDIA's own validity")
        grace_s = 0
        if table.has("ocsp_grace_s"):
            grace_s = table.number("ocsp_grace_s", minimum=0, maximum=MAX_OCSP_GRACE_S)
        rules.append(
            RevocationChecked(
                max_age=timedelta(seconds=min(max_age_s, MAX_OCSP_AGE_S)),
                grace=timedelta(seconds=grace_s),
            )
        )
    table.finish()
    return tuple(rules)


def _count(table: PolicyTable) -> CountAllowed:
    minimum, maximum = table.number("min_count"), table.number("max_count")
    if not minimum <= maximum <= MAX_DEVICES:
        table.problem("max_count", f"want a number of min_count to {MAX_DEVICES}")
    return CountAllowed(minimum=minimum, maximum=maximum)


def _minimum_versions(
    table: PolicyTable, architectures: AbstractSet[str], modes: AbstractSet[str]
) -> MinimumVersions:
    """One VBIOS floor for each kind of device that the policy can accept."""
    driver = _floor(table, "min_driver", _DRIVER_VERSION, 10)
    floors = table.table("min_vbios")
    devices = {*architectures} | ({_SWITCH} if "ppcie" in modes else set())
    vbios = {arch: _floor(floors, arch.lower(), _VBIOS_VERSION, 16) for arch in sorted(devices)}
    floors.finish()
    return MinimumVersions(driver=driver, vbios=vbios)


def _floor(table: PolicyTable, key: str, pattern: re.Pattern[str], base: int) -> Version:
    text = table.name(key)
    if pattern.fullmatch(text):
        return _version(text, base)
    if text:
        table.problem(key, "want a version, numbers and dots in lower case")
    return ()


def _version(text: str | None, base: int) -> Version:
    """Its numbers; a version that is not made of numbers is older than any."""
    parts = (text or "").split(".")
    try:
        return tuple(int(part, base) for part in parts) if all(map(str.isalnum, parts)) else ()
    except ValueError:
        return ()

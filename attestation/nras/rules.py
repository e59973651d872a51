"""Is what NRAS says of good devices good enough?  One small class per rule, one question each."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from attestation.errors import PolicyCode, PolicyViolation, StaleEvidence
from attestation.nras.token import VERSIONS, NrasClaims
from attestation.policy_table import PolicyTable, in_form
from attestation.rules import EndingRule, Observed, Rule, ValuesAllowed, end_of_age, listed

MAX_AGE_S = 24 * 3600  # NRAS gives its tokens an hour
_MODEL = re.compile(r"[A-Za-z0-9_][\x20-\x7e]{0,63}")
_VERSION = re.compile(r"[0-9A-F]{1,4}(\.[0-9A-F]{1,4}){1,7}")
_UEID = re.compile(r"[0-9]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimsVersionAllowed(ValuesAllowed[NrasClaims]):
    """The claims are of a version that the policy names: 3.0 says more than 2.0."""

    name: str = "claims_version"
    passed: str = "the policy accepts this version of the claims"
    code: PolicyCode = "claims"

    def observe(self, claims: NrasClaims) -> Observed:
        """The version of the claims."""
        got = claims.version
        yield got, f"claims are of version {got}, want {listed(self.allowed)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRecent(EndingRule[NrasClaims]):
    """The answer is not only unexpired but as young as the policy wants."""

    max_age_s: int
    name: str = "token_age"
    passed: str = "the answer is recent"

    def require(self, claims: NrasClaims) -> None:
        """Raises: StaleEvidence("evidence_age")."""
        age_s = (claims.verified_at - claims.issued_at).total_seconds()
        if age_s > self.max_age_s:
            raise StaleEvidence(
                "evidence_age", f"token is {age_s:.0f} s old, at most {self.max_age_s}"
            )

    def end(self, claims: NrasClaims) -> datetime:
        """When the oldest token reaches that age."""
        return end_of_age(claims.issued_at, timedelta(seconds=self.max_age_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class NoWarning:
    """NRAS warns of nothing, such as a certificate on hold."""

    name: str = "nras_warning"
    passed: str = "NRAS warns of nothing"

    def require(self, claims: NrasClaims) -> None:
        """Raises: PolicyViolation("claims")."""
        for device in claims.devices:
            if device.warning is not None:
                raise PolicyViolation("claims", f"{device.name}: NRAS warns: {device.warning}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCount:
    """As many GPUs were appraised as the node has: none is left out of sight."""

    count: int
    name: str = "gpu_count"
    passed: str = "every GPU was appraised"

    def require(self, claims: NrasClaims) -> None:
        """Raises: PolicyViolation("gpu_count")."""
        got = sum(device.kind == "gpu" for device in claims.devices)
        if got != self.count:
            raise PolicyViolation("gpu_count", f"{got} GPUs, want {self.count}")


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareModelAllowed(ValuesAllowed[NrasClaims]):
    """Every device is of a model that the policy names."""

    name: str = "hardware_model"
    passed: str = "every device is of a known model"
    code: PolicyCode = "gpu_arch"

    def observe(self, claims: NrasClaims) -> Observed:
        """The model of every device."""
        for device in claims.devices:
            yield device.hw_model, f"{device.name} is a {device.hw_model}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverVersionAllowed(ValuesAllowed[NrasClaims]):
    """Every GPU runs a driver that the policy names."""

    name: str = "driver_version"
    passed: str = "every GPU runs a known driver"
    code: PolicyCode = "measurement_mismatch"

    def observe(self, claims: NrasClaims) -> Observed:
        """The driver of every GPU; a switch has none."""
        for device in claims.devices:
            if device.kind == "gpu":
                yield device.driver_version, f"{device.name} runs driver {device.driver_version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class VbiosVersionAllowed(ValuesAllowed[NrasClaims]):
    """Every device has firmware that the policy names."""

    name: str = "vbios_version"
    passed: str = "every device has a known VBIOS or BIOS"
    code: PolicyCode = "measurement_mismatch"

    def observe(self, claims: NrasClaims) -> Observed:
        """The VBIOS or BIOS of every device."""
        for device in claims.devices:
            yield device.vbios_version, f"{device.name} has VBIOS {device.vbios_version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAllowed(ValuesAllowed[NrasClaims]):
    """Every device is one of ours: against a genuine GPU in a machine with an interposer."""

    name: str = "device_identity"
    passed: str = "every device is a known one"
    code: PolicyCode = "platform_not_allowed"

    def observe(self, claims: NrasClaims) -> Observed:
        """The identity of every device."""
        for device in claims.devices:
            yield device.ueid, f"{device.name} is none of {len(self.allowed)} devices"


_DEVICE_VALUES = (
    ("hardware_models", _MODEL, HardwareModelAllowed),
    ("driver_versions", _VERSION, DriverVersionAllowed),
    ("vbios_versions", _VERSION, VbiosVersionAllowed),
    ("ueids", _UEID, DeviceAllowed),
)


def parse_rules(table: PolicyTable) -> tuple[Rule[NrasClaims], ...]:
    """The rules of a policy's NRAS table: versions, max_age_s, warnings and the table devices."""
    rules: list[Rule[NrasClaims]] = [
        ClaimsVersionAllowed(allowed=table.names("versions", VERSIONS.__contains__)),
        TokenRecent(max_age_s=table.number("max_age_s", maximum=MAX_AGE_S)),
    ]
    if table.choice("warnings", ("refused", "allowed")) == "refused":
        rules.append(NoWarning())
    rules += _device_rules(table.table("devices"))
    table.finish()
    return tuple(rules)


def _device_rules(table: PolicyTable) -> list[Rule[NrasClaims]]:
    """``mode`` is said aloud: leaving reference values out is never a silent pass."""
    mode = table.choice("mode", ("required", "not_checked"))
    rules: list[Rule[NrasClaims]] = []
    if mode == "required":
        if table.has("gpus"):
            rules.append(GpuCount(count=table.number("gpus", minimum=0)))
        for key, form, rule in _DEVICE_VALUES:
            if table.has(key):
                rules.append(rule(allowed=table.names(key, in_form(form))))
        if not rules:
            table.problem("mode", "required, but nothing has reference values")
    table.finish()
    return rules

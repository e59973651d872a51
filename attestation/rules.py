"""Is what genuine Evidence claims good enough?  One small class per rule, one question each.

A rule takes verified claims and returns nothing or raises PolicyViolation with its code.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from attestation.errors import PolicyViolation
from attestation.tdx.quote import EnclaveReport, TdReport
from attestation.tdx.verifier import TdxClaims

_SGX_DEBUG = 0x02  # ATTRIBUTES byte 0  [Intel SDM vol. 3D sec. 34.7.1]
_TD_DEBUG = 1  # TDATTRIBUTES; bits 1..7 are reserved  [Intel TDX module ABI, TDATTRIBUTES]
_SEPT_VE_DISABLE = 1 << 28
_MIGRATABLE = 1 << 29
_KNOWN_TD_BITS = _TD_DEBUG | _SEPT_VE_DISABLE | _MIGRATABLE | 1 << 30 | 1 << 31 | 1 << 63
_XFAM_FIXED_ONE = 0b11  # x87 and SSE state


class Rule(Protocol):
    """One question of an AppraisalPolicy."""

    @property
    def name(self) -> str:
        """The name of its Check."""

    @property
    def passed(self) -> str:
        """What to tell people when it holds."""

    def require(self, claims: TdxClaims) -> None:
        """Raises: PolicyViolation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TeeTypeAllowed:
    """The Evidence comes from a kind of TEE that the policy names."""

    allowed: frozenset[str]
    name: str = "tee_type"
    passed: str = "the policy accepts this kind of TEE"

    def require(self, claims: TdxClaims) -> None:
        """Raises: PolicyViolation("tee_type")."""
        if claims.tee not in self.allowed:
            raise PolicyViolation("tee_type", f"TEE is {claims.tee}, want {_listed(self.allowed)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DebugOff:
    """The guest or enclave cannot be inspected by its host."""

    name: str = "debug_off"
    passed: str = "debug is off"

    def require(self, claims: TdxClaims) -> None:
        """Raises: PolicyViolation("debug_enabled")."""
        report = claims.report
        if isinstance(report, EnclaveReport):
            is_debug = bool(report.attributes[0] & _SGX_DEBUG)
        else:
            is_debug = bool(_bits(report.td_attributes) & _TD_DEBUG)
        if is_debug:
            raise PolicyViolation("debug_enabled", "debug is on: the host can read its memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class TdAttributesSound:
    """No reserved attribute, the fixed XFAM bits, and SEPT_VE_DISABLE when it is required."""

    is_septve_disable_required: bool
    name: str = "td_attributes"
    passed: str = "TD attributes are sound"

    def require(self, claims: TdxClaims) -> None:
        """Raises: PolicyViolation("td_attributes")."""
        if not isinstance(claims.report, TdReport):
            return
        attributes = _bits(claims.report.td_attributes)
        if attributes & ~_KNOWN_TD_BITS:
            raise PolicyViolation("td_attributes", "a reserved TD attribute is set")
        if self.is_septve_disable_required and not attributes & _SEPT_VE_DISABLE:
            raise PolicyViolation("td_attributes", "SEPT_VE_DISABLE is clear")
        if _bits(claims.report.xfam) & _XFAM_FIXED_ONE != _XFAM_FIXED_ONE:
            raise PolicyViolation("td_attributes", "XFAM lacks x87 or SSE state")


@dataclass(frozen=True, slots=True, kw_only=True)
class NoServiceTd:
    """No service TD may act on this TD.

    A TD 1.0 report cannot name the service TD that migrates a migratable TD, so it may not be one.
    """

    name: str = "service_td"
    passed: str = "no service TD is bound"

    def require(self, claims: TdxClaims) -> None:
        """Raises: PolicyViolation: service_td_not_zero, td_attributes."""
        report = claims.report
        if not isinstance(report, TdReport):
            return
        if report.mr_service_td is None:
            if _bits(report.td_attributes) & _MIGRATABLE:
                raise PolicyViolation("td_attributes", "MIGRATABLE, and the report names no one")
        elif any(report.mr_service_td):
            raise PolicyViolation("service_td_not_zero", "MRSERVICETD is not zero")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationFloor:
    """The collateral is from a recent enough TCB recovery: old genuine collateral is no excuse."""

    minimum: int
    name: str = "tcb_evaluation_floor"
    passed: str = "the collateral is of a recent TCB recovery"

    def require(self, claims: TdxClaims) -> None:
        """Raises: PolicyViolation("tcb_evaluation_floor")."""
        got = claims.tcb_evaluation_data_number
        if got < self.minimum:
            raise PolicyViolation(
                "tcb_evaluation_floor", f"TCB evaluation data number {got}, want {self.minimum}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TcbStatusAllowed:
    """The merged TCB status is one the policy names, its advisories too; Revoked never is."""

    statuses: frozenset[str]
    advisories: frozenset[str]
    name: str = "tcb_status"
    passed: str = "the TCB status is one that the policy accepts"

    def require(self, claims: TdxClaims) -> None:
        """Raises: PolicyViolation("tcb_status")."""
        status = claims.tcb.status
        if status == "Revoked" or status not in self.statuses:
            raise PolicyViolation(
                "tcb_status", f"TCB status is {status}, want {_listed(self.statuses)}"
            )
        if status != "UpToDate" and (open_ := set(claims.tcb.advisories) - self.advisories):
            raise PolicyViolation("tcb_status", f"advisories not accepted: {_listed(open_)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementsExpected:
    """What was launched is one of the reference values; ``values`` maps a register to those."""

    values: tuple[tuple[str, frozenset[str]], ...]
    name: str = "measurements"
    passed: str = "every measurement is one of its reference values"

    def require(self, claims: TdxClaims) -> None:
        """Raises: PolicyViolation("measurement_mismatch")."""
        observed = measurements(claims)
        for register, expected in self.values:
            if observed.get(register) not in expected:
                raise PolicyViolation(
                    "measurement_mismatch",
                    f"{register} is none of {len(expected)} reference values",
                )


def measurements(claims: TdxClaims) -> dict[str, str]:
    """Measurement registers by name, lower-case hex."""
    report = claims.report
    if isinstance(report, EnclaveReport):
        return {"mrenclave": report.mr_enclave.hex(), "mrsigner": report.mr_signer.hex()}
    registers = {f"rtmr{index}": rtmr.hex() for index, rtmr in enumerate(report.rtmrs)}
    return {"mrtd": report.mr_td.hex(), "mrseam": report.mr_seam.hex(), **registers}


def _bits(field: bytes) -> int:
    return int.from_bytes(field, "little")


def _listed(names: Sequence[str] | frozenset[str] | set[str]) -> str:
    return ", ".join(sorted(names))

"""Is what a genuine quote claims good enough?  One small class per rule, one question each.

A rule takes verified claims and returns nothing or raises PolicyViolation with its code.
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import get_args

from attestation.errors import PolicyCode, PolicyViolation
from attestation.policy_table import PolicyTable, in_form, in_hex
from attestation.rules import (
    EndingRule,
    LenientRule,
    Observed,
    RegistersExpected,
    Rule,
    ValuesAllowed,
    end_of_age,
    listed,
    read_reference_values,
)
from attestation.tdx.collateral import TcbStatus
from attestation.tdx.pck import PPID_BYTES
from attestation.tdx.quote import EnclaveReport, TdReport
from attestation.tdx.verifier import TdxClaims

_SGX_DEBUG = 0x02  # ATTRIBUTES byte 0  [Intel SDM vol. 3D sec. 34.7.1]
_TD_DEBUG = 1  # TDATTRIBUTES; bits 1..7 are reserved  [Intel TDX module ABI, TDATTRIBUTES]
_SEPT_VE_DISABLE = 1 << 28
_MIGRATABLE = 1 << 29
_KNOWN_TD_BITS = _TD_DEBUG | _SEPT_VE_DISABLE | _MIGRATABLE | 1 << 30 | 1 << 31 | 1 << 63
_XFAM_FIXED_ONE = 0b11  # x87 and SSE state
ALLOWABLE_STATUSES = frozenset(get_args(TcbStatus)) - {"Revoked"}
REGISTERS = dict.fromkeys(("mrtd", "mrseam", "rtmr0", "rtmr1", "rtmr2", "rtmr3"), 48)  # bytes
_ADVISORY = re.compile(r"INTEL-SA-\d{5}")
TEE_TCB_SVN_BYTES = 16
MAX_AGE_DAYS = 3650


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
    A TD 1.5-ex report also names the service TDs at launch and now: one that has since let go has
    acted all the same.
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
        extension = report.extension
        if extension is None:
            return
        if any(extension.init_service_td_hash):
            raise PolicyViolation("service_td_not_zero", "INIT_SERVTD_HASH is not zero")
        if any(extension.current_service_td_hash):
            raise PolicyViolation("service_td_not_zero", "CUR_SERVTD_HASH is not zero")


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
class TcbStatusAllowed(LenientRule):
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
                "tcb_status", f"TCB status is {status}, want {listed(self.statuses)}"
            )
        if status != "UpToDate" and (open_ := set(claims.tcb.advisories) - self.advisories):
            raise PolicyViolation("tcb_status", f"advisories not accepted: {listed(open_)}")

    def conceded(self) -> tuple[str, ...]:
        """Every status but the best one."""
        return tuple(f"TCB status {status}" for status in sorted(self.statuses - {"UpToDate"}))


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementsExpected(RegistersExpected[TdxClaims]):
    """The TD, its module and its run-time measurements are those of the reference values."""

    def observe(self, claims: TdxClaims) -> dict[str, str]:
        """Measurement registers by name, lower-case hex."""
        return measurements(claims)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollateralAge(EndingRule[TdxClaims]):
    """TCB info and QE identity were issued recently enough, whatever their own end says."""

    maximum: timedelta
    name: str = "collateral_age"
    passed: str = "the collateral was issued recently enough"

    def require(self, claims: TdxClaims) -> None:
        """Raises: PolicyViolation("evidence_age")."""
        if claims.verified_at - claims.collateral_issued > self.maximum:
            raise PolicyViolation(
                "evidence_age", f"collateral is older than {self.maximum.days} day(s)"
            )

    def end(self, claims: TdxClaims) -> datetime:
        """When the collateral reaches that age."""
        return end_of_age(claims.collateral_issued, self.maximum)


@dataclass(frozen=True, slots=True, kw_only=True)
class TeeTcbFloor:
    """Every component of TEE_TCB_SVN reaches its floor; an enclave's report has none."""

    minimum: bytes
    name: str = "tcb_floor"
    passed: str = "every component of TEE_TCB_SVN reaches its floor"

    def require(self, claims: TdxClaims) -> None:
        """Raises: PolicyViolation("tcb_floor")."""
        if not isinstance(claims.report, TdReport):
            return
        observed = claims.report.tee_tcb_svn
        below = [i for i, want in enumerate(self.minimum) if observed[i] < want]
        if below:
            raise PolicyViolation("tcb_floor", f"TEE_TCB_SVN component(s) {below} below the floor")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformAllowed(ValuesAllowed[TdxClaims]):
    """The platform is one that the policy lists: a stolen key of another one gains nothing."""

    name: str = "platform"
    passed: str = "the platform is one that the policy lists"
    code: PolicyCode = "platform_not_allowed"

    def observe(self, claims: TdxClaims) -> Observed:
        """The PPID."""
        yield claims.ppid.hex(), f"PPID is none of {len(self.allowed)} that the policy lists"


def measurements(claims: TdxClaims) -> dict[str, str]:
    """Measurement registers by name, lower-case hex."""
    report = claims.report
    if isinstance(report, EnclaveReport):
        return {"mrenclave": report.mr_enclave.hex(), "mrsigner": report.mr_signer.hex()}
    registers = {f"rtmr{index}": rtmr.hex() for index, rtmr in enumerate(report.rtmrs)}
    return {"mrtd": report.mr_td.hex(), "mrseam": report.mr_seam.hex(), **registers}


def _bits(field: bytes) -> int:
    return int.from_bytes(field, "little")


def parse_rules(table: PolicyTable) -> tuple[Rule[TdxClaims], ...]:
    """The rules of a policy's ``tdx`` table."""
    rules = [*_td_rules(table.table("td")), *_tcb_rules(table.table("tcb"))]
    if values := read_reference_values(table.table("measurements"), REGISTERS):
        rules.append(MeasurementsExpected(values=values))
    rules += _platform_rules(table.table("platforms"))
    table.finish()
    return tuple(rules)


def _td_rules(table: PolicyTable) -> list[Rule[TdxClaims]]:
    table.choice("debug", ("refused",))  # no policy can allow it; it is there to be read
    service_td = table.choice("service_td", ("refused", "allowed"))
    septve = table.choice("septve_disable", ("required", "not_required"))
    table.finish()
    attributes = TdAttributesSound(is_septve_disable_required=septve == "required")
    rules: list[Rule[TdxClaims]] = [DebugOff(), attributes]
    return [*rules, NoServiceTd()] if service_td == "refused" else rules


def _tcb_rules(table: PolicyTable) -> list[Rule[TdxClaims]]:
    statuses = table.names("statuses", ALLOWABLE_STATUSES.__contains__)
    advisories = table.names("advisories", in_form(_ADVISORY), may_be_empty=True)
    minimum = table.number("min_evaluation_data_number")
    age = timedelta(days=table.number("max_collateral_age_days", maximum=MAX_AGE_DAYS))
    floor = table.hex_bytes("min_tee_tcb_svn", TEE_TCB_SVN_BYTES)
    table.finish()
    return [
        EvaluationFloor(minimum=minimum),
        CollateralAge(maximum=age),
        TeeTcbFloor(minimum=floor),
        TcbStatusAllowed(statuses=statuses, advisories=advisories),
    ]


def _platform_rules(table: PolicyTable) -> list[Rule[TdxClaims]]:
    rules: list[Rule[TdxClaims]] = []
    if table.choice("mode", ("any", "listed")) == "listed":
        rules.append(PlatformAllowed(allowed=table.names("ppid", in_hex(PPID_BYTES))))
    table.finish()
    return rules

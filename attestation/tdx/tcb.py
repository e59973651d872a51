"""At which TCB level is this platform, and what does that level mean?  [Intel DCAP QVL]

Comparison is by component, never by one number; the first level in Intel's order that the platform
reaches is its level. No level at all is an error, not "OutOfDate".
"""

from dataclasses import dataclass
from datetime import datetime
from operator import ge

from attestation.errors import EndorsementMismatch
from attestation.tdx.collateral import (
    EnclaveLevel,
    PlatformLevel,
    TcbLevel,
    TcbStatus,
    TdxModule,
    VerifiedQeIdentity,
    VerifiedTcbInfo,
)
from attestation.tdx.pck import PckExtension
from attestation.tdx.quote import EnclaveReport, TdReport

_CONFIGURATION_NEEDED: frozenset[TcbStatus] = frozenset(
    {
        "ConfigurationNeeded",
        "ConfigurationAndSWHardeningNeeded",
        "OutOfDateConfigurationNeeded",
    }
)
_OUT_OF_DATE: frozenset[TcbStatus] = frozenset({"OutOfDate", "OutOfDateConfigurationNeeded"})
_OUT_OF_DATE_WITH: dict[TcbStatus, TcbStatus] = {
    "UpToDate": "OutOfDate",
    "SWHardeningNeeded": "OutOfDate",
    "ConfigurationNeeded": "OutOfDateConfigurationNeeded",
    "ConfigurationAndSWHardeningNeeded": "OutOfDateConfigurationNeeded",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TcbAppraisal:
    """The merged status with the union of the matched levels' advisories, oldest date."""

    status: TcbStatus
    advisories: tuple[str, ...]
    tcb_date: datetime


def match_platform(
    info: VerifiedTcbInfo, pck: PckExtension, td_report: TdReport | None
) -> PlatformLevel:
    """The first level that PCK certificate and TD report reach; ``td_report`` is None for SGX.

    Raises: EndorsementMismatch("tcb_no_match").
    """
    return _match_platform(info, pck, b"" if td_report is None else td_report.tee_tcb_svn)


def _match_platform(info: VerifiedTcbInfo, pck: PckExtension, svns: bytes) -> PlatformLevel:
    # with a module of major version > 0, components 0 and 1 are judged by its module identity
    first = 2 if svns and svns[1] > 0 else 0
    for level in info.levels:
        if (
            _reaches(pck.component_svns, level.sgx_svns)
            and pck.pce_svn >= level.pce_svn
            and _reaches(svns[first:], level.tdx_svns[first:])
        ):
            return level
    raise EndorsementMismatch("tcb_no_match", "the platform reaches no TCB level of the TCB info")


def match_module(info: VerifiedTcbInfo, report: TdReport) -> EnclaveLevel | None:
    """The level of the TDX module, None for major version 0 (the platform level covers it).

    Raises: EndorsementMismatch: tdx_module, tcb_no_match.
    """
    module = _identity(info, report.tee_tcb_svn[1])
    masked = _masked(report.seam_attributes, module.attributes_mask)
    if report.mr_signer_seam != module.mr_signer:
        raise EndorsementMismatch("tdx_module", "MRSIGNERSEAM is not the module's signer")
    if any(report.seam_attributes) or masked != module.attributes:
        raise EndorsementMismatch("tdx_module", "SEAMATTRIBUTES are not the module's")
    return _match_module_level(info, report.tee_tcb_svn)


def _match_module_level(info: VerifiedTcbInfo, svns: bytes) -> EnclaveLevel | None:
    minor, major = svns[0], svns[1]
    if major == 0:
        return None
    module = _identity(info, major)
    for level in module.levels:
        if level.isv_svn <= minor:
            return level
    raise EndorsementMismatch("tcb_no_match", f"module {module.module_id} reaches no TCB level")


def match_quoting_enclave(identity: VerifiedQeIdentity, report: EnclaveReport) -> EnclaveLevel:
    """The level of the Quoting Enclave that made ``report``.

    Raises: EndorsementMismatch("qe_identity_mismatch").
    """
    wrong = [
        name
        for name, is_equal in (
            (
                "MISCSELECT",
                _masked(report.misc_select, identity.misc_select_mask) == identity.misc_select,
            ),
            (
                "ATTRIBUTES",
                _masked(report.attributes, identity.attributes_mask) == identity.attributes,
            ),
            ("MRSIGNER", report.mr_signer == identity.mr_signer),
            ("ISVPRODID", report.isv_prod_id == identity.isv_prod_id),
        )
        if not is_equal
    ]
    if wrong:
        raise EndorsementMismatch(
            "qe_identity_mismatch", f"QE report differs from its identity: {', '.join(wrong)}"
        )
    for level in identity.levels:
        if level.isv_svn <= report.isv_svn:
            return level
    raise EndorsementMismatch(
        "qe_identity_mismatch", f"QE ISVSVN {report.isv_svn} reaches no TCB level"
    )


def merge(
    platform: PlatformLevel, module: EnclaveLevel | None, quoting_enclave: EnclaveLevel
) -> TcbAppraisal:
    """Platform first, then module, then QE: Revoked wins, OutOfDate pulls the others down."""
    status = platform.status
    enclaves = [quoting_enclave] if module is None else [module, quoting_enclave]
    for level in enclaves:
        if level.status == "Revoked":
            status = "Revoked"
        elif level.status == "OutOfDate":
            status = _OUT_OF_DATE_WITH.get(status, status)
    levels: list[TcbLevel] = [platform, *enclaves]
    return TcbAppraisal(
        status=status,
        advisories=tuple(sorted({each for level in levels for each in level.advisories})),
        tcb_date=min(level.tcb_date for level in levels),
    )


def with_current_module(
    launch: TcbAppraisal,
    info: VerifiedTcbInfo,
    pck: PckExtension,
    current_svns: bytes,
    quoting_enclave: EnclaveLevel,
) -> TcbAppraisal:
    """``launch``, seen beside what ``current_svns`` (TEE_TCB_SVN_2) says of the module now.

    Launched out of date, under a module that has since been updated: relaunching helps, and its
    status says so.  [Intel DCAP QVL, checkForRelaunch] A module that is Revoked now is Revoked;
    Intel's library would leave that at OutOfDate. In every other case the launch decides.

    Raises: EndorsementMismatch: tdx_module, tcb_no_match.
    """
    current = merge(
        _match_platform(info, pck, current_svns),
        _match_module_level(info, current_svns),
        quoting_enclave,
    )
    status = launch.status
    if current.status == "Revoked":
        status = "Revoked"
    elif launch.status in _OUT_OF_DATE and current.status not in _OUT_OF_DATE:
        is_configuration_needed = not _CONFIGURATION_NEEDED.isdisjoint(
            (launch.status, current.status)
        )
        status = (
            "TDRelaunchAdvisedConfigurationNeeded"
            if is_configuration_needed
            else "TDRelaunchAdvised"
        )
    if status == launch.status:
        return launch
    return TcbAppraisal(
        status=status,
        advisories=tuple(sorted({*launch.advisories, *current.advisories})),
        tcb_date=min(launch.tcb_date, current.tcb_date),
    )


def _identity(info: VerifiedTcbInfo, major: int) -> TdxModule:
    if major == 0 and info.module is not None:
        return info.module
    module_id = f"TDX_{major:02X}"
    for identity in info.module_identities:
        if identity.module_id.upper() == module_id:
            return identity
    raise EndorsementMismatch("tdx_module", f"the TCB info has no identity for module {module_id}")


def _reaches(have: tuple[int, ...] | bytes, want: tuple[int, ...]) -> bool:
    return len(have) == len(want) and all(map(ge, have, want))


def _masked(value: bytes, mask: bytes) -> bytes:
    """Byte by byte; both are of the length that the report's field has."""
    masked = int.from_bytes(value, "big") & int.from_bytes(mask, "big")
    return masked.to_bytes(len(value), "big")

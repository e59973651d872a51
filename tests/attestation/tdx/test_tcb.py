"""Levels are matched by component, and statuses merged as Intel's own library merges them."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from attestation.errors import EndorsementMismatch
from attestation.fake import FakeTee
from attestation.tdx.collateral import (
    EnclaveLevel,
    PlatformLevel,
    TcbStatus,
    TdxModule,
    VerifiedQeIdentity,
    VerifiedTcbInfo,
)
from attestation.tdx.pck import PckExtension
from attestation.tdx.quote import TdReport, parse_quote
from attestation.tdx.tcb import match_module, match_platform, match_quoting_enclave, merge

_NEW, _OLD = datetime(2025, 5, 14, tzinfo=UTC), datetime(2023, 8, 9, tzinfo=UTC)


def _platform(status: TcbStatus, *advisories: str) -> PlatformLevel:
    return PlatformLevel(
        sgx_svns=(0,) * 16,
        pce_svn=0,
        tdx_svns=(0,) * 16,
        status=status,
        tcb_date=_NEW,
        advisories=advisories,
    )


def _enclave(status: TcbStatus, *advisories: str, date: datetime = _NEW) -> EnclaveLevel:
    return EnclaveLevel(isv_svn=0, status=status, tcb_date=date, advisories=advisories)


@pytest.mark.parametrize(
    ("platform", "enclave", "want"),
    [
        ("UpToDate", "UpToDate", "UpToDate"),
        ("SWHardeningNeeded", "UpToDate", "SWHardeningNeeded"),
        ("UpToDate", "OutOfDate", "OutOfDate"),
        ("SWHardeningNeeded", "OutOfDate", "OutOfDate"),
        ("ConfigurationNeeded", "OutOfDate", "OutOfDateConfigurationNeeded"),
        ("ConfigurationAndSWHardeningNeeded", "OutOfDate", "OutOfDateConfigurationNeeded"),
        ("OutOfDate", "OutOfDate", "OutOfDate"),
        ("OutOfDateConfigurationNeeded", "OutOfDate", "OutOfDateConfigurationNeeded"),
        ("UpToDate", "Revoked", "Revoked"),
        ("Revoked", "OutOfDate", "Revoked"),
        ("Revoked", "UpToDate", "Revoked"),
    ],
)
def test_merge_table(platform: TcbStatus, enclave: TcbStatus, want: TcbStatus) -> None:
    good = _enclave("UpToDate")

    assert merge(_platform(platform), _enclave(enclave), good).status == want
    assert merge(_platform(platform), good, _enclave(enclave)).status == want
    assert merge(_platform(platform), None, _enclave(enclave)).status == want


def test_merge_joins_advisories_and_keeps_the_oldest_date() -> None:
    merged = merge(
        _platform("UpToDate", "INTEL-SA-00002"),
        _enclave("UpToDate", "INTEL-SA-00001", date=_OLD),
        _enclave("UpToDate", "INTEL-SA-00002"),
    )

    assert merged.advisories == ("INTEL-SA-00001", "INTEL-SA-00002")
    assert merged.tcb_date == _OLD


_SIGNER = TdxModule(
    module_id="",
    mr_signer=bytes(48),
    attributes=bytes(8),
    attributes_mask=b"\xff" * 8,
    levels=(),
)
_INFO = VerifiedTcbInfo(
    issue_date=_NEW,
    next_update=_NEW,
    fmspc=bytes(6),
    pce_id=bytes(2),
    tcb_evaluation_data_number=20,
    module=_SIGNER,
    module_identities=(
        replace(
            _SIGNER,
            module_id="TDX_01",
            levels=(
                replace(_enclave("UpToDate"), isv_svn=5),
                replace(_enclave("OutOfDate"), isv_svn=2),
            ),
        ),
    ),
    levels=(
        replace(_platform("UpToDate"), sgx_svns=(3,) * 16, pce_svn=9, tdx_svns=(4, 0, *(4,) * 14)),
        replace(_platform("OutOfDate"), sgx_svns=(1,) * 16, pce_svn=5, tdx_svns=(2, 0, *(2,) * 14)),
    ),
)
_PCK = PckExtension(
    ppid=bytes(16), fmspc=bytes(6), pce_id=bytes(2), pce_svn=9, component_svns=(3,) * 16
)


def _report(svn: tuple[int, int] = (4, 0), rest: int = 4, **changes: bytes) -> TdReport:
    body = parse_quote(FakeTee().quote(bytes(64))).body
    assert isinstance(body, TdReport)
    tee_tcb_svn = bytes([*svn, *(rest,) * 14])
    return replace(body, tee_tcb_svn=tee_tcb_svn, **changes)  # type: ignore[arg-type]


def _identity(**changes: Any) -> VerifiedQeIdentity:
    report = parse_quote(FakeTee().quote(bytes(64))).qe_report
    identity = VerifiedQeIdentity(
        issue_date=_NEW,
        next_update=_NEW,
        tcb_evaluation_data_number=20,
        misc_select=bytes(4),
        misc_select_mask=b"\xff" * 4,
        attributes=b"\x11" + bytes(15),
        attributes_mask=b"\xfb" + b"\xff" * 7 + bytes(8),
        mr_signer=report.mr_signer,
        isv_prod_id=2,
        levels=(replace(_enclave("UpToDate"), isv_svn=4),),
    )
    return replace(identity, **changes)


def _code(function: Callable[..., object], *arguments: object) -> str:
    with pytest.raises(EndorsementMismatch) as caught:
        function(*arguments)
    return caught.value.code


@pytest.mark.parametrize(
    ("pck", "report", "status"),
    [
        (_PCK, _report(), "UpToDate"),
        (replace(_PCK, pce_svn=8), _report(), "OutOfDate"),
        (replace(_PCK, component_svns=(9,) * 15 + (2,)), _report(), "OutOfDate"),
        (_PCK, _report(rest=3), "OutOfDate"),
        (_PCK, _report((3, 0)), "OutOfDate"),
        (_PCK, _report((1, 0)), None),  # below every level in component 0
        (_PCK, _report((0, 1)), "UpToDate"),  # the module's identity judges components 0 and 1
    ],
)
def test_a_level_is_reached_in_every_component(
    pck: PckExtension, report: TdReport, status: TcbStatus | None
) -> None:
    if status is None:
        assert _code(match_platform, _INFO, pck, report) == "tcb_no_match"
    else:
        assert match_platform(_INFO, pck, report).status == status


def test_a_module_of_any_major_version_is_above_the_platforms_components() -> None:
    """Component 1 is the module's major version, which no platform level has a say in."""
    level = replace(_platform("UpToDate"), tdx_svns=(9, 9, *(4,) * 14))

    assert match_platform(replace(_INFO, levels=(level,)), _PCK, _report((0, 1))) == level


def test_an_sgx_platform_has_no_tdx_components() -> None:
    level = replace(_platform("UpToDate"), tdx_svns=())

    assert match_platform(replace(_INFO, levels=(level,)), _PCK, None) == level


def test_no_level_is_an_error_and_never_out_of_date() -> None:
    assert _code(match_platform, _INFO, replace(_PCK, pce_svn=4), _report()) == "tcb_no_match"


def test_module_levels() -> None:
    newest = match_module(_INFO, _report((7, 1)))
    older = match_module(_INFO, _report((4, 1)))

    assert newest is not None
    assert older is not None
    assert (newest.status, older.status) == ("UpToDate", "OutOfDate")
    assert match_module(_INFO, _report((9, 0))) is None
    assert _code(match_module, _INFO, _report((1, 1))) == "tcb_no_match"
    assert _code(match_module, _INFO, _report((9, 2))) == "tdx_module"
    assert _code(match_module, replace(_INFO, module=None), _report()) == "tdx_module"


def test_the_module_is_the_vendors() -> None:
    other_signer = _report(mr_signer_seam=b"\1" + bytes(47))
    other_attributes = _report(seam_attributes=b"\1" + bytes(7))
    unmasked = replace(_INFO, module=replace(_SIGNER, attributes_mask=bytes(8)))
    other_want = replace(_INFO, module=replace(_SIGNER, attributes=b"\1" + bytes(7)))

    assert _code(match_module, _INFO, other_signer) == "tdx_module"
    assert _code(match_module, _INFO, other_attributes) == "tdx_module"
    assert _code(match_module, unmasked, other_attributes) == "tdx_module"
    assert _code(match_module, other_want, _report()) == "tdx_module"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"misc_select": b"\1\0\0\0"}, "differs from its identity: MISCSELECT"),
        ({"attributes": b"\x13" + bytes(15)}, "differs from its identity: ATTRIBUTES"),
        ({"mr_signer": bytes(32)}, "differs from its identity: MRSIGNER"),
        ({"isv_prod_id": 1}, "differs from its identity: ISVPRODID"),
        ({"levels": (replace(_enclave("UpToDate"), isv_svn=5),)}, "ISVSVN 4 reaches no TCB level"),
    ],
)
def test_each_part_of_the_quoting_enclaves_identity(changes: dict[str, Any], reason: str) -> None:
    report = parse_quote(FakeTee().quote(bytes(64))).qe_report

    assert match_quoting_enclave(_identity(), report).status == "UpToDate"
    with pytest.raises(EndorsementMismatch) as caught:
        match_quoting_enclave(_identity(**changes), report)
    assert caught.value.code == "qe_identity_mismatch"
    assert str(caught.value).endswith(reason)

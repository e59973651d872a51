"""Levels are matched by component, and statuses merged as Intel's own library merges them."""

from datetime import UTC, datetime

import pytest

from attestation.tdx.collateral import EnclaveLevel, PlatformLevel, TcbStatus
from attestation.tdx.tcb import merge

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

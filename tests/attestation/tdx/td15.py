"""Quotes of TD 1.5 and 1.5-ex bodies, and what must be made of a TDX module updated under a TD.

A FakeTee's platform reaches two levels: a newer one at SVN 5 and an older one at SVN 3. Launch and
now are told apart by TEE_TCB_SVN and TEE_TCB_SVN_2; everything is signed.
"""

import json
import struct
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from attestation.fake import FakeTee
from attestation.fake.attester import _ATTESTATION_KEY, _CERT_TYPE_QE_REPORT, _typed
from attestation.fake.pki import TCB_SIGNER_NAME, FakePki
from attestation.fake.platform import FakePlatform
from attestation.tdx.endorsements import TdxCollateral
from tests.attestation.samples import AT

REPORT_DATA = bytes(range(64))
_TD15_EX_TAIL = bytes(237)
_NEW_DATE, _OLD_DATE = "2025-05-14T00:00:00Z", "2023-08-09T00:00:00Z"
_UNKNOWN_TO_MODULES = 9


def svns(module: int, platform: int, *, major: int = 1) -> bytes:
    """TEE_TCB_SVN: the module's minor and major version, then the third component."""
    return bytes([module, major, platform]) + bytes(13)


NEW, OLD = svns(5, 5), svns(3, 3)


@dataclass(frozen=True)
class Td15Tee(FakeTee):
    """A FakeTee whose version 5 quotes name both SVNs; ``body_type`` 2 is TD 1.0, 4 is 1.5-ex."""

    launch: bytes = NEW
    now: bytes = NEW
    body_type: int = 3
    tail: bytes = _TD15_EX_TAIL

    def quote(self, report_data: bytes) -> bytes:
        """A version 5 quote over ``report_data``."""
        v4 = replace(self.platform, tee_tcb_svn=self.launch).header_and_td_report(report_data)
        body = v4[48:]
        if self.body_type >= 3:
            body += self.now + bytes(48)
        if self.body_type == 4:
            body += self.tail
        signed = b"\5" + v4[1:48] + struct.pack("<HI", self.body_type, len(body)) + body
        signature_data = (
            self.pki.sign(_ATTESTATION_KEY, signed)
            + self.pki.public_point(_ATTESTATION_KEY)
            + _typed(_CERT_TYPE_QE_REPORT, self._certification)
        )
        return signed + struct.pack("<I", len(signature_data)) + signature_data


@dataclass(frozen=True, kw_only=True)
class Relaunch:
    """One situation: what each level means, what was launched, what runs now, what must come out.

    ``expect`` is a TCB status, or the code of an error.
    """

    name: str
    expect: str
    launch: bytes = OLD
    now: bytes = NEW
    new_platform: str = "UpToDate"
    old_platform: str = "OutOfDate"
    new_module: str = "UpToDate"
    old_module: str = "OutOfDate"
    qe: str = "UpToDate"
    body_type: int = 3

    def evidence(
        self, pki: FakePki | None = None, platform: FakePlatform | None = None
    ) -> tuple[bytes, TdxCollateral]:
        """(quote, collateral) under the fake root, current at AT."""
        tee = Td15Tee(
            pki=pki or FakePki(),
            platform=replace(platform or FakePlatform(), qe_status=self.qe),
            launch=self.launch,
            now=self.now,
            body_type=self.body_type,
        )
        quote, collateral = tee.attest(REPORT_DATA, at=AT)
        text = self._tcb_info(tee.platform)
        signature = tee.pki.sign(TCB_SIGNER_NAME, text.encode())
        return quote, replace(collateral, tcb_info=text, tcb_info_signature=signature)

    def _tcb_info(self, platform: FakePlatform) -> str:
        day = timedelta(days=1)
        info: dict[str, Any] = json.loads(platform.tcb_info(AT - day, AT + day))
        (level,) = info["tcbLevels"]
        info["tcbLevels"] = [
            _platform_level(level, 5, self.new_platform, _NEW_DATE, ["INTEL-SA-00002"]),
            _platform_level(level, 3, self.old_platform, _OLD_DATE, ["INTEL-SA-00001"]),
        ]
        info["tdxModuleIdentities"][0]["tcbLevels"] = [
            {"tcb": {"isvsvn": 5}, "tcbDate": _NEW_DATE, "tcbStatus": self.new_module},
            {"tcb": {"isvsvn": 3}, "tcbDate": _OLD_DATE, "tcbStatus": self.old_module},
        ]
        return json.dumps(info, separators=(",", ":"))


def _platform_level(
    level: dict[str, Any], svn: int, status: str, date: str, advisories: list[str]
) -> dict[str, Any]:
    components = [0, 0, svn] + [0] * 13  # 0 and 1 are the module identity's to judge
    tcb = {**level["tcb"], "tdxtcbcomponents": [{"svn": component} for component in components]}
    named = {} if status == "UpToDate" else {"advisoryIDs": advisories}
    return {"tcb": tcb, "tcbDate": date, "tcbStatus": status, **named}


RELAUNCHES = (
    Relaunch(name="module and platform updated", expect="TDRelaunchAdvised"),
    Relaunch(name="module updated", expect="TDRelaunchAdvised", launch=svns(3, 5)),
    Relaunch(name="platform updated", expect="TDRelaunchAdvised", launch=svns(5, 3)),
    Relaunch(name="1.5-ex body", expect="TDRelaunchAdvised", body_type=4),
    Relaunch(
        name="hardening needed now", expect="TDRelaunchAdvised", new_platform="SWHardeningNeeded"
    ),
    Relaunch(
        name="configuration needed now",
        expect="TDRelaunchAdvisedConfigurationNeeded",
        new_platform="ConfigurationNeeded",
    ),
    Relaunch(
        name="configuration and hardening needed now",
        expect="TDRelaunchAdvisedConfigurationNeeded",
        new_platform="ConfigurationAndSWHardeningNeeded",
    ),
    Relaunch(
        name="configuration needed at launch",
        expect="TDRelaunchAdvisedConfigurationNeeded",
        old_platform="OutOfDateConfigurationNeeded",
    ),
    Relaunch(
        name="launched when it was current", expect="UpToDate", launch=NEW, now=OLD
    ),  # the launch decides
    Relaunch(name="not updated", expect="OutOfDate", now=OLD),
    Relaunch(name="updated to what is out of date too", expect="OutOfDate", new_module="OutOfDate"),
    Relaunch(name="QE out of date", expect="OutOfDate", qe="OutOfDate"),
    Relaunch(name="QE revoked", expect="Revoked", qe="Revoked"),
    Relaunch(name="launched under a revoked module", expect="Revoked", old_module="Revoked"),
    Relaunch(name="updated to a revoked module", expect="Revoked", new_module="Revoked"),
    Relaunch(name="now below every platform level", expect="tcb_no_match", now=svns(5, 2)),
    Relaunch(name="now below every module level", expect="tcb_no_match", now=svns(2, 5)),
    Relaunch(
        name="now a module that is not known",
        expect="tdx_module",
        now=svns(5, 5, major=_UNKNOWN_TO_MODULES),
    ),
    Relaunch(name="1.0 body says nothing of now", expect="OutOfDate", body_type=2),
)

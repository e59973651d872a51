"""What does the FAKE TEE claim to be, and how do a platform's facts look in Intel's formats?

Field values are made up and say so where they can hold text: measurements are digests of the words
"starshade FAKE" and the register's name.
"""

import hashlib
import json
import struct
from dataclasses import dataclass
from datetime import datetime

from attestation.strict_json import format_time
from attestation.tdx.quote import INTEL_QE_VENDOR_ID

_SGX_ARC = bytes.fromhex("2a864886f84d010d01")
_TCB_EVALUATION_DATA_NUMBER = 20
_TCB_DATE = "2025-05-14T00:00:00Z"
_SEPT_VE_DISABLE = bytes.fromhex("0000001000000000")
_XFAM = bytes.fromhex("e702060000000000")
_QE_ATTRIBUTES = bytes.fromhex("1100000000000000e700000000000000")


@dataclass(frozen=True, slots=True, kw_only=True)
class FakePlatform:
    """The facts of one simulated machine; a test changes one and everything is signed anew."""

    fmspc: bytes = bytes.fromhex("fa4e00000000")
    pce_id: bytes = b"\0\0"
    pce_svn: int = 11
    component_svns: tuple[int, ...] = (2,) * 8 + (0,) * 8
    tee_tcb_svn: bytes = bytes([5, 1, 4]) + bytes(13)
    td_attributes: bytes = _SEPT_VE_DISABLE
    qe_isv_svn: int = 4
    qe_isv_prod_id: int = 2
    tcb_status: str = "UpToDate"
    module_status: str = "UpToDate"
    qe_status: str = "UpToDate"

    def sgx_extension(self) -> bytes:
        """DER of Intel's extension of a PCK certificate."""
        svns = [_pair(2, i + 1, value=_integer(v)) for i, v in enumerate(self.component_svns)]
        tcb = [*svns, _pair(2, 17, value=_integer(self.pce_svn))]
        return _tlv(
            0x30,
            _pair(1, value=_tlv(0x04, fake_digest("PPID")[:16]))
            + _pair(2, value=_tlv(0x30, b"".join(tcb)))
            + _pair(3, value=_tlv(0x04, self.pce_id))
            + _pair(4, value=_tlv(0x04, self.fmspc))
            + _pair(5, value=_tlv(0x0A, b"\0")),
        )

    def tcb_info(self, issued: datetime, next_update: datetime) -> str:
        """The text of the TCB info, as it is signed."""
        module = {"mrsigner": bytes(48).hex(), "attributes": "00" * 8, "attributesMask": "FF" * 8}
        return _json(
            {
                "id": "TDX",
                "version": 3,
                **_dates(issued, next_update),
                "fmspc": self.fmspc.hex(),
                "pceId": self.pce_id.hex(),
                "tcbType": 0,
                "tdxModule": module,
                "tdxModuleIdentities": [
                    {
                        "id": f"TDX_{self.tee_tcb_svn[1]:02X}",
                        **module,
                        "tcbLevels": [_level({"isvsvn": self.tee_tcb_svn[0]}, self.module_status)],
                    }
                ],
                "tcbLevels": [
                    _level(
                        {
                            "sgxtcbcomponents": [{"svn": svn} for svn in self.component_svns],
                            "pcesvn": self.pce_svn,
                            "tdxtcbcomponents": [{"svn": svn} for svn in self.tee_tcb_svn],
                        },
                        self.tcb_status,
                    )
                ],
            }
        )

    def qe_identity(self, issued: datetime, next_update: datetime) -> str:
        """The text of the QE identity, as it is signed."""
        return _json(
            {
                "id": "TD_QE",
                "version": 2,
                **_dates(issued, next_update),
                "miscselect": "00000000",
                "miscselectMask": "FFFFFFFF",
                "attributes": "11000000000000000000000000000000",
                "attributesMask": "FBFFFFFFFFFFFFFF0000000000000000",
                "mrsigner": fake_digest("QE MRSIGNER")[:32].hex(),
                "isvprodid": self.qe_isv_prod_id,
                "tcbLevels": [_level({"isvsvn": self.qe_isv_svn}, self.qe_status)],
            }
        )

    def qe_report(self, report_data: bytes) -> bytes:
        """The Quoting Enclave's own SGX report, 384 bytes."""
        report = bytearray(384)
        report[0:16] = bytes(self.component_svns)
        report[48:64] = _QE_ATTRIBUTES
        report[64:96] = fake_digest("QE MRENCLAVE")[:32]
        report[128:160] = fake_digest("QE MRSIGNER")[:32]
        struct.pack_into("<HH", report, 256, self.qe_isv_prod_id, self.qe_isv_svn)
        report[320:384] = report_data
        return bytes(report)

    def header_and_td_report(self, report_data: bytes) -> bytes:
        """The signed part of a version 4 quote, 48 + 584 bytes."""
        header = struct.pack("<HHII", 4, 2, 0x81, 0) + INTEL_QE_VENDOR_ID + bytes(20)
        registers = (fake_digest(f"RTMR{index}") for index in range(4))
        return b"".join(
            (
                header,
                self.tee_tcb_svn,
                fake_digest("MRSEAM"),
                bytes(48 + 8),  # MRSIGNERSEAM and SEAMATTRIBUTES of an Intel module
                self.td_attributes,
                _XFAM,
                fake_digest("MRTD"),
                bytes(48 * 3),  # MRCONFIGID, MROWNER, MROWNERCONFIG
                *registers,
                report_data,
            )
        )


def fake_digest(name: str) -> bytes:
    """48 bytes that stand for a measurement."""
    return hashlib.sha384(b"starshade FAKE " + name.encode("utf-8")).digest()


def _dates(issued: datetime, next_update: datetime) -> dict[str, object]:
    return {
        "issueDate": format_time(issued),
        "nextUpdate": format_time(next_update),
        "tcbEvaluationDataNumber": _TCB_EVALUATION_DATA_NUMBER,
    }


def _level(tcb: dict[str, object], status: str) -> dict[str, object]:
    return {"tcb": tcb, "tcbDate": _TCB_DATE, "tcbStatus": status}


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _pair(*arcs: int, value: bytes) -> bytes:
    return _tlv(0x30, _tlv(0x06, _SGX_ARC + bytes(arcs)) + value)


def _integer(number: int) -> bytes:
    return _tlv(0x02, number.to_bytes(number.bit_length() // 8 + 1, "big"))


def _tlv(tag: int, value: bytes) -> bytes:
    length = len(value)
    if length < 0x80:
        return bytes([tag, length]) + value
    if length < 0x100:
        return bytes([tag, 0x81, length]) + value
    return bytes([tag, 0x82]) + length.to_bytes(2, "big") + value

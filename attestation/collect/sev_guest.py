"""How does /dev/sev-guest give an SEV-SNP report?  [linux/sev-guest.h]

One ioctl with pointers to a request and to a buffer for the answer. The extended one also returns
the host's certificate table, and says how much room it needs when there was too little.
"""

import ctypes
import errno
import fcntl
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from attestation.collect.cert_table import MAX_TABLE_BYTES
from attestation.collect.configfs import REPORT_DATA_BYTES
from attestation.collect.errors import TeeUnavailable
from attestation.collect.retrying import retried
from attestation.snp.report import IOCTL_BUFFER_BYTES, report_from_response

Ioctl = Callable[[int, int, ctypes.Structure], int]

DEFAULT_DEVICE: Final = Path("/dev/sev-guest")
SNP_GET_REPORT: Final = 0xC0205300  # _IOWR('S', 0, struct snp_guest_request_ioctl)
SNP_GET_EXT_REPORT: Final = 0xC0205302
MESSAGE_VERSION: Final = 1
VMM_INVALID_LENGTH: Final = 1  # SNP_GUEST_VMM_ERR_INVALID_LEN
VMM_BUSY: Final = 2
_FIRST_TABLE_BYTES: Final = 16 * 1024


class ReportRequest(ctypes.Structure):
    """struct snp_report_req."""

    _fields_ = (
        ("user_data", ctypes.c_uint8 * REPORT_DATA_BYTES),
        ("vmpl", ctypes.c_uint32),
        ("reserved", ctypes.c_uint8 * 28),
    )


class ExtendedRequest(ctypes.Structure):
    """struct snp_ext_report_req."""

    _fields_ = (
        ("data", ReportRequest),
        ("certs_address", ctypes.c_uint64),
        ("certs_len", ctypes.c_uint32),
    )


class GuestRequest(ctypes.Structure):
    """struct snp_guest_request_ioctl; the last two are its exitinfo2."""

    _fields_ = (
        ("msg_version", ctypes.c_uint8),
        ("req_data", ctypes.c_uint64),
        ("resp_data", ctypes.c_uint64),
        ("fw_error", ctypes.c_uint32),
        ("vmm_error", ctypes.c_uint32),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SevGuest:
    """The device; ``vmpl`` is the level that the report speaks for."""

    device: Path = DEFAULT_DEVICE
    ioctl: Ioctl = fcntl.ioctl
    sleep: Callable[[float], None] = time.sleep
    vmpl: int = 0

    def report(self, report_data: bytes) -> tuple[bytes, bytes]:
        """(report of 1184 bytes, the host's certificate table or nothing).

        Raises: TeeUnavailable; MalformedEvidence("format"): the firmware refused;
        ValueError: ``report_data`` of another length.
        """
        if len(report_data) != REPORT_DATA_BYTES:
            raise ValueError(f"report_data: {len(report_data)} bytes, want {REPORT_DATA_BYTES}")
        try:
            handle = os.open(self.device, os.O_RDWR | os.O_CLOEXEC)
        except OSError as err:
            raise TeeUnavailable(
                f"{self.device}: {err.strerror}",
                next_step="load sev-guest and run as root, or give this user the device",
            ) from err
        try:
            return self._ask(handle, report_data)
        except OSError as err:
            raise TeeUnavailable(
                f"{self.device}: {err.strerror}",
                next_step="look at the kernel log (dmesg); the host may have to provide a key",
            ) from err
        finally:
            os.close(handle)

    def _ask(self, handle: int, report_data: bytes) -> tuple[bytes, bytes]:
        try:
            return self._extended(handle, report_data, _FIRST_TABLE_BYTES)
        except OSError as err:
            if err.errno != errno.ENOTTY:  # kernels before the extended request
                raise
        return self._send(handle, SNP_GET_REPORT, _request(report_data, self.vmpl)), b""

    def _extended(self, handle: int, report_data: bytes, table_bytes: int) -> tuple[bytes, bytes]:
        table = (ctypes.c_uint8 * table_bytes)()
        request = ExtendedRequest(
            data=_request(report_data, self.vmpl),
            certs_address=ctypes.addressof(table),
            certs_len=table_bytes,
        )
        try:
            return self._send(handle, SNP_GET_EXT_REPORT, request), _table(bytes(table))
        except _TableTooSmall as err:
            if not table_bytes < request.certs_len <= MAX_TABLE_BYTES:
                raise OSError(errno.EMSGSIZE, "certificate table of a strange size") from err
        return self._extended(handle, report_data, request.certs_len)

    def _send(self, handle: int, command: int, request: ctypes.Structure) -> bytes:
        def once() -> bytes:
            response = (ctypes.c_uint8 * IOCTL_BUFFER_BYTES)()
            message = GuestRequest(
                msg_version=MESSAGE_VERSION,
                req_data=ctypes.addressof(request),
                resp_data=ctypes.addressof(response),
            )
            try:
                self.ioctl(handle, command, message)
            except OSError as err:
                if message.vmm_error == VMM_INVALID_LENGTH:
                    raise _TableTooSmall from err
                if message.vmm_error == VMM_BUSY:
                    raise OSError(errno.EBUSY, "host busy") from err
                raise
            return bytes(response)

        return report_from_response(retried(once, sleep=self.sleep))


class _TableTooSmall(Exception):
    """The request now says how many bytes the table needs."""


def _request(report_data: bytes, vmpl: int) -> ReportRequest:
    return ReportRequest(user_data=(ctypes.c_uint8 * REPORT_DATA_BYTES)(*report_data), vmpl=vmpl)


def _table(data: bytes) -> bytes:
    return data if any(data) else b""

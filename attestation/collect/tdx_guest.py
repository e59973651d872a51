"""How does a TDX guest without configfs-tsm get a quote?  [linux/tdx-guest.h, DCAP qgs_msg_lib]

/dev/tdx_guest makes a TDREPORT, which only this machine can check. The host's quote generation
service turns it into a quote, over vsock: a length in big-endian, then its message.
"""

import ctypes
import errno
import fcntl
import os
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from attestation.collect.configfs import MAX_OUTBLOB_BYTES, REPORT_DATA_BYTES
from attestation.collect.errors import TeeUnavailable
from attestation.collect.retrying import retried

Ioctl = Callable[[int, int, ctypes.Structure], int]

DEFAULT_DEVICE: Final = Path("/dev/tdx_guest")
TDX_CMD_GET_REPORT0: Final = 0xC4405401  # _IOWR('T', 1, struct tdx_report_req)
TDREPORT_BYTES: Final = 1024
HOST_CID: Final = 2
QGS_PORT: Final = 4050
QGS_TIMEOUT_S: Final = 30.0
_HEADER: Final = struct.Struct("<HHIII")  # major, minor, type, size of all, error
_GET_QUOTE_REQ, _GET_QUOTE_RESP = 0, 1
_MAJOR: Final = 1


class TdxReportRequest(ctypes.Structure):
    """struct tdx_report_req."""

    _fields_ = (
        ("reportdata", ctypes.c_uint8 * REPORT_DATA_BYTES),
        ("tdreport", ctypes.c_uint8 * TDREPORT_BYTES),
    )


class Connection(Protocol):
    """What is used of a connected socket."""

    def sendall(self, data: bytes, /) -> None:
        """All of it."""

    def recv(self, num_bytes: int, /) -> bytes:
        """Some of it; nothing at the end."""

    def close(self) -> None:
        """Ends it."""


def connect_to_host() -> Connection:
    """The quote generation service of the host.  Raises: OSError."""
    connection = socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM)
    connection.settimeout(QGS_TIMEOUT_S)
    try:
        connection.connect((HOST_CID, QGS_PORT))
    except OSError:
        connection.close()
        raise
    return connection


@dataclass(frozen=True, slots=True, kw_only=True)
class TdxGuest:
    """The device and the host's service."""

    device: Path = DEFAULT_DEVICE
    ioctl: Ioctl = fcntl.ioctl
    connect: Callable[[], Connection] = connect_to_host
    sleep: Callable[[float], None] = time.sleep

    def quote(self, report_data: bytes) -> bytes:
        """A quote over ``report_data``, 64 bytes.

        Raises: TeeUnavailable; ValueError: ``report_data`` of another length.
        """
        report = self.td_report(report_data)
        try:
            connection = self.connect()
            try:
                return _exchange(connection, report)
            finally:
                connection.close()
        except OSError as err:
            raise TeeUnavailable(
                f"quote generation service: {err.strerror or type(err).__name__}",
                next_step="use Linux 6.7 or newer for configfs-tsm, or start qgsd on the host "
                f"and allow vsock port {QGS_PORT}",
            ) from err

    def td_report(self, report_data: bytes) -> bytes:
        """The TDREPORT, 1024 bytes.  Raises: as ``quote``."""
        if len(report_data) != REPORT_DATA_BYTES:
            raise ValueError(f"report_data: {len(report_data)} bytes, want {REPORT_DATA_BYTES}")
        request = TdxReportRequest(reportdata=(ctypes.c_uint8 * REPORT_DATA_BYTES)(*report_data))
        try:
            handle = os.open(self.device, os.O_RDWR | os.O_CLOEXEC)
            try:
                retried(lambda: self.ioctl(handle, TDX_CMD_GET_REPORT0, request), sleep=self.sleep)
            finally:
                os.close(handle)
        except OSError as err:
            raise TeeUnavailable(
                f"{self.device}: {err.strerror}",
                next_step="load tdx-guest and run as root, or give this user the device",
            ) from err
        return bytes(request.tdreport)


def _exchange(connection: Connection, report: bytes) -> bytes:
    body = struct.pack("<II", len(report), 0) + report  # no list of QE ids
    size = _HEADER.size + len(body)
    message = _HEADER.pack(_MAJOR, 0, _GET_QUOTE_REQ, size, 0) + body
    connection.sendall(struct.pack(">I", len(message)) + message)
    (length,) = struct.unpack(">I", _receive(connection, 4))
    if not _HEADER.size + 8 <= length <= MAX_OUTBLOB_BYTES:
        raise OSError(errno.EPROTO, f"an answer of {length} bytes")
    answer = _receive(connection, length)
    major, _, kind, size, error = _HEADER.unpack_from(answer)
    if (major, kind, size) != (_MAJOR, _GET_QUOTE_RESP, length) or error:
        raise OSError(errno.EPROTO, f"refused, error {error:#x}")
    id_bytes, quote_bytes = struct.unpack_from("<II", answer, _HEADER.size)
    start = _HEADER.size + 8 + id_bytes
    if start + quote_bytes != length or not quote_bytes:
        raise OSError(errno.EPROTO, "lengths in the answer disagree")
    return answer[start:]


def _receive(connection: Connection, num_bytes: int) -> bytes:
    received = bytearray()
    while len(received) < num_bytes:
        part = connection.recv(num_bytes - len(received))
        if not part:
            raise OSError(errno.EPROTO, "the answer ends early")
        received += part
    return bytes(received)

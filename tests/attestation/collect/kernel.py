"""A kernel's side of the interfaces: a configfs tree, device ioctls, QGS and NVML, all fake."""

import ctypes
import errno
import os
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attestation.collect.configfs import Files
from attestation.collect.sev_guest import (
    SNP_GET_EXT_REPORT,
    ExtendedRequest,
    GuestRequest,
    ReportRequest,
)
from attestation.collect.tdx_guest import TdxReportRequest

_HEADER = struct.Struct("<HHIII")


@dataclass(kw_only=True)
class FakeKernel:
    """Plays configfs-tsm below ``base``: ``quote`` makes outblob of inblob when outblob is read.

    outblob is a FIFO that a thread serves, as the kernel makes the quote at the time of reading.
    ``faults`` are errno values for the next operations of that name.
    """

    base: Path
    quote: Callable[[bytes], bytes]
    provider: str = "tdx_guest"
    auxblob: bytes | None = None
    intruders: int = 0
    faults: dict[str, list[int]] = field(default_factory=dict)
    written: list[tuple[str, bytes]] = field(default_factory=list)
    made: list[str] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.base.mkdir(parents=True, exist_ok=True)

    def files(self) -> Files:
        kernel = self

        class Played(Files):
            __slots__ = ()

            def write(self, path: Path, data: bytes) -> None:
                kernel._fail("write", path)
                kernel._write(path, data)

            def read(self, path: Path, max_bytes: int) -> bytes:
                kernel._fail(path.name, path)
                if path.name == "outblob":
                    kernel._serve(path)
                return Files.read(self, path, max_bytes)

        return Played(mkdir=self._mkdir, rmdir=self._rmdir)

    def _fail(self, name: str, path: Path) -> None:
        if waiting := self.faults.get(name):
            number = waiting.pop(0)
            raise OSError(number, os.strerror(number), str(path))

    def _mkdir(self, entry: Path) -> None:
        self._fail("mkdir", entry)
        entry.mkdir()
        self.made.append(entry.name)
        (entry / "provider").write_text(self.provider + "\n")
        (entry / "generation").write_text("0\n")
        for name in ("inblob", "privlevel"):
            (entry / name).write_bytes(b"")
        os.mkfifo(entry / "outblob")
        if self.auxblob is not None:
            (entry / "auxblob").write_bytes(self.auxblob)

    def _rmdir(self, entry: Path) -> None:
        self._fail("rmdir", entry)
        for path in entry.iterdir():
            path.unlink()
        entry.rmdir()

    def _write(self, path: Path, data: bytes) -> None:
        self.written.append((path.name, data))
        path.write_bytes(data)
        self._bump(path.parent)

    def _bump(self, entry: Path) -> None:
        generation = entry / "generation"
        generation.write_text(f"{int(generation.read_text()) + 1}\n")

    def _serve(self, outblob: Path) -> None:
        """The quote is made while the reader waits; an intruder may write in between."""

        def play() -> None:
            data = self.quote((outblob.parent / "inblob").read_bytes())
            if self.intruders:
                self.intruders -= 1
                self._bump(outblob.parent)
            outblob.write_bytes(data)

        thread = threading.Thread(target=play)
        self.threads.append(thread)
        thread.start()


@dataclass(kw_only=True)
class FakeSevDevice:
    """The ioctls of /dev/sev-guest, reading and writing the caller's memory as the kernel does."""

    report: Callable[[bytes], bytes]
    table: bytes = b""
    status: int = 0
    has_extended: bool = True
    faults: list[tuple[int, int]] = field(default_factory=list)  # errno, vmm_error
    commands: list[int] = field(default_factory=list)
    vmpls: list[int] = field(default_factory=list)

    def __call__(self, handle: int, command: int, message: Any) -> int:
        assert isinstance(message, GuestRequest)
        assert message.msg_version == 1
        os.fstat(handle)
        self.commands.append(command)
        if self.faults:
            number, message.vmm_error = self.faults.pop(0)
            raise OSError(number, os.strerror(number))
        request = ReportRequest.from_address(message.req_data)
        if command == SNP_GET_EXT_REPORT:
            if not self.has_extended:
                raise OSError(errno.ENOTTY, "not a typewriter")
            extended = ExtendedRequest.from_address(message.req_data)
            if extended.certs_len < len(self.table):
                extended.certs_len = len(self.table)
                message.vmm_error = 1
                raise OSError(errno.EIO, "I/O error")
            ctypes.memmove(extended.certs_address, self.table, len(self.table))
        self.vmpls.append(request.vmpl)
        report = self.report(bytes(request.user_data))
        response = struct.pack("<II24s", self.status, len(report), bytes(24)) + report
        ctypes.memmove(message.resp_data, response, len(response))
        return 0


def td_report_ioctl(handle: int, command: int, message: Any) -> int:
    """TDX_CMD_GET_REPORT0: a TDREPORT that begins with the report data."""
    assert command == 0xC4405401
    assert isinstance(message, TdxReportRequest)
    os.fstat(handle)
    message.tdreport = (ctypes.c_uint8 * 1024)(*bytes(message.reportdata))
    return 0


@dataclass(kw_only=True)
class FakeQgs:
    """The host's quote generation service, as one connected socket."""

    quote: Callable[[bytes], bytes]
    change: Callable[[bytes], bytes] = bytes
    requests: list[bytes] = field(default_factory=list)
    is_closed: bool = False
    _answer: bytes = b""

    def sendall(self, data: bytes, /) -> None:
        (length,) = struct.unpack_from(">I", data)
        message = data[4:]
        assert len(message) == length
        major, minor, kind, size, error = _HEADER.unpack_from(message)
        assert (major, minor, kind, size, error) == (1, 0, 0, length, 0)
        report_bytes, id_bytes = struct.unpack_from("<II", message, _HEADER.size)
        assert (report_bytes, id_bytes) == (1024, 0)
        report = message[_HEADER.size + 8 :]
        assert len(report) == 1024
        self.requests.append(report)
        quote = self.quote(report[:64])
        body = struct.pack("<II", 0, len(quote)) + quote
        answer = _HEADER.pack(1, 0, 1, _HEADER.size + len(body), 0) + body
        self._answer = self.change(struct.pack(">I", len(answer)) + answer)

    def recv(self, num_bytes: int, /) -> bytes:
        part = self._answer[: min(num_bytes, 100)]
        self._answer = self._answer[len(part) :]
        return part

    def close(self) -> None:
        self.is_closed = True


class NvmlError(Exception):
    """NVML's own."""


@dataclass
class _Fields:
    """A structure of NVML."""

    values: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        return self.values[name]


@dataclass(kw_only=True)
class FakeNvml:
    """The names of ``nvidia-ml-py`` that are used.

    A device is (architecture, chain, report); ``report`` is called with the nonce.
    """

    devices: list[tuple[int, bytes, Callable[[bytes], bytes]]]
    feature: int = 1
    devtools: int = 0
    environment: int = 2
    multi_gpu: int = 0
    settings_status: int = 0
    ready: int = 1
    has_driver: bool = True
    broken: str = ""
    said_size: int | None = None
    opened: int = 0
    NVMLError: type[Exception] = NvmlError

    class c_nvmlSystemConfComputeSettings_v1_t:  # noqa: N801 - the library's name
        multiGpuMode = 0  # noqa: N815 - the library's name

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name == object.__getattribute__(self, "broken"):
            raise NvmlError("Not Supported")
        return object.__getattribute__(self, name)

    def nvmlInit(self) -> None:  # noqa: N802 - the library's name
        if not self.has_driver:
            raise NvmlError("NVML Shared Library Not Found")
        self.opened += 1

    def nvmlShutdown(self) -> None:  # noqa: N802 - the library's name
        self.opened -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802 - the library's name
        return len(self.devices)

    def nvmlSystemGetConfComputeState(self) -> Any:  # noqa: N802 - the library's name
        return _Fields(
            {
                "ccFeature": self.feature,
                "devToolsMode": self.devtools,
                "environment": self.environment,
            }
        )

    def nvmlSystemGetConfComputeSettings(self, settings: Any) -> int:  # noqa: N802
        settings.multiGpuMode = self.multi_gpu
        return self.settings_status

    def nvmlSystemGetConfComputeGpusReadyState(self) -> int:  # noqa: N802
        return self.ready

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetArchitecture(self, handle: int) -> int:  # noqa: N802
        return self.devices[handle][0]

    def nvmlDeviceGetConfComputeGpuCertificate(self, handle: int) -> Any:  # noqa: N802
        chain = self.devices[handle][1]
        buffer = (ctypes.c_uint8 * 0x1400)(*chain)
        size = len(chain) if self.said_size is None else self.said_size
        return _Fields({"attestationCertChain": buffer, "attestationCertChainSize": size})

    def nvmlDeviceGetConfComputeGpuAttestationReport(self, handle: int, nonce: bytes) -> Any:  # noqa: N802
        report = self.devices[handle][2](bytes(nonce))
        buffer = (ctypes.c_uint8 * 0x2000)(*report)
        return _Fields({"attestationReport": buffer, "attestationReportSize": len(report)})

"""/dev/tdx_guest and the host's quote service: exact layouts, and answers that are not believed."""

import ctypes
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from attestation.collect.errors import TeeUnavailable
from attestation.collect.tdx_guest import TDX_CMD_GET_REPORT0, TdxGuest, TdxReportRequest
from attestation.fake import FakeTee
from tests.attestation.collect.kernel import FakeQgs, td_report_ioctl

_DATA = bytes(range(64))


@pytest.fixture
def guest(tmp_path: Path) -> Callable[..., TdxGuest]:
    node = tmp_path / "tdx_guest"
    node.write_bytes(b"")

    def make(qgs: FakeQgs, **changes: Any) -> TdxGuest:
        made = {"ioctl": td_report_ioctl, "connect": lambda: qgs, "sleep": lambda _: None}
        return TdxGuest(device=node, **{**made, **changes})

    return make


def test_layout_is_the_kernels() -> None:
    assert ctypes.sizeof(TdxReportRequest) == 1088
    assert TdxReportRequest.tdreport.offset == 64
    assert 3 << 30 | 1088 << 16 | ord("T") << 8 | 1 == TDX_CMD_GET_REPORT0


def test_a_quote_over_the_report_data(guest: Callable[..., TdxGuest]) -> None:
    qgs = FakeQgs(quote=FakeTee().quote)

    assert guest(qgs).quote(_DATA) == FakeTee().quote(_DATA)
    assert qgs.is_closed
    assert qgs.requests[0][:64] == _DATA


def test_an_interrupted_ioctl_is_tried_again(guest: Callable[..., TdxGuest]) -> None:
    calls = 0

    def flaky(handle: int, command: int, message: Any) -> int:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise InterruptedError(4, "interrupted")
        return td_report_ioctl(handle, command, message)

    assert guest(FakeQgs(quote=FakeTee().quote), ioctl=flaky).quote(_DATA)


def _set(offset: int, value: bytes) -> Callable[[bytes], bytes]:
    return lambda answer: answer[:offset] + value + answer[offset + len(value) :]


@pytest.mark.parametrize(
    "change",
    [
        lambda answer: answer[:3],
        lambda answer: answer[:-1],
        lambda _: b"",
        _set(0, struct.pack(">I", 7)),
        _set(0, struct.pack(">I", 0xFFFFFFFF)),
        _set(4, struct.pack("<H", 2)),  # major version
        _set(8, struct.pack("<I", 3)),  # type
        _set(12, struct.pack("<I", 5)),  # size
        _set(16, struct.pack("<I", 0x12001)),  # error
        _set(20, struct.pack("<I", 1)),  # id size
        _set(24, struct.pack("<I", 1)),  # quote size
    ],
)
def test_answers_that_are_not_believed(
    guest: Callable[..., TdxGuest], change: Callable[[bytes], bytes]
) -> None:
    qgs = FakeQgs(quote=FakeTee().quote, change=change)
    with pytest.raises(TeeUnavailable, match="quote generation service"):
        guest(qgs).quote(_DATA)
    assert qgs.is_closed


def test_an_empty_quote_is_none(guest: Callable[..., TdxGuest]) -> None:
    with pytest.raises(TeeUnavailable):
        guest(FakeQgs(quote=lambda _: b"")).quote(_DATA)


def test_no_service_and_no_device(guest: Callable[..., TdxGuest], tmp_path: Path) -> None:
    def refuse() -> FakeQgs:
        raise ConnectionRefusedError(111, "Connection refused")

    with pytest.raises(TeeUnavailable) as caught:
        guest(FakeQgs(quote=FakeTee().quote), connect=refuse).quote(_DATA)
    assert "4050" in caught.value.next_step

    with pytest.raises(TeeUnavailable, match="No such file"):
        TdxGuest(device=tmp_path / "none").quote(_DATA)
    with pytest.raises(ValueError, match="want 64"):
        guest(FakeQgs(quote=FakeTee().quote)).quote(b"")

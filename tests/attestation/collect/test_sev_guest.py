"""/dev/sev-guest and the certificate table: exact layouts, the table's room, and faults."""

import ctypes
import errno
import random
import struct
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from attestation.certificate import parse_chain
from attestation.collect.cert_table import NAMES, parse_cert_table, table_endorsements
from attestation.collect.errors import TeeUnavailable
from attestation.collect.sev_guest import (
    SNP_GET_EXT_REPORT,
    SNP_GET_REPORT,
    ExtendedRequest,
    GuestRequest,
    ReportRequest,
    SevGuest,
)
from attestation.errors import MalformedEvidence
from tests.attestation.collect.kernel import FakeSevDevice
from tests.support.fake_snp import FakeSnp

_DATA = bytes(range(64))
_TEE = FakeSnp()
_GUIDS = {name: guid for guid, name in NAMES.items()}


def cert_table(entries: dict[str | uuid.UUID, bytes]) -> bytes:
    """A table as the host writes it."""
    offset = 24 * (len(entries) + 1)
    head, body = b"", b""
    for name, data in entries.items():
        guid = name if isinstance(name, uuid.UUID) else _GUIDS[name]
        head += guid.bytes + struct.pack("<II", offset + len(body), len(data))
        body += data
    return head + bytes(24) + body


def fingerprints(chain: bytes) -> list[str]:
    """Of the certificates of a PEM chain, however its lines are cut."""
    certificates = parse_chain(chain, what="chain", key_kinds=frozenset({"rsa"}))
    return [certificate.sha256 for certificate in certificates]


def _report(report_data: bytes) -> bytes:
    return _TEE.report(report_data=report_data)


@pytest.fixture
def guest(tmp_path: Path) -> Callable[..., SevGuest]:
    node = tmp_path / "sev-guest"
    node.write_bytes(b"")

    def make(device: FakeSevDevice, **changes: Any) -> SevGuest:
        return SevGuest(device=node, ioctl=device, sleep=lambda _: None, **changes)

    return make


def test_layouts_are_the_kernels() -> None:
    assert ctypes.sizeof(ReportRequest) == 96
    assert (ReportRequest.vmpl.offset, ReportRequest.reserved.offset) == (64, 68)
    assert ctypes.sizeof(ExtendedRequest) == 112
    assert (ExtendedRequest.certs_address.offset, ExtendedRequest.certs_len.offset) == (96, 104)
    assert ctypes.sizeof(GuestRequest) == 32
    assert [getattr(GuestRequest, name).offset for name, *_ in GuestRequest._fields_] == [
        0,
        8,
        16,
        24,
        28,
    ]
    for number, command in ((0, SNP_GET_REPORT), (2, SNP_GET_EXT_REPORT)):
        assert command == 3 << 30 | 32 << 16 | ord("S") << 8 | number


def test_a_report_and_the_hosts_certificates(guest: Callable[..., SevGuest]) -> None:
    table = cert_table({"VCEK": _TEE.vek(), "ASK": _TEE.issuer(), "ARK": _TEE.ark()})
    device = FakeSevDevice(report=_report, table=table)

    report, found = guest(device, vmpl=1).report(_DATA)

    assert report == _report(_DATA)
    assert found.startswith(table)
    assert not any(found[len(table) :])
    assert (device.commands, device.vmpls) == ([SNP_GET_EXT_REPORT], [1])
    assert table_endorsements(found) == table_endorsements(table)


def test_a_larger_table_is_asked_for_again(guest: Callable[..., SevGuest]) -> None:
    table = cert_table({"VCEK": _TEE.vek(), uuid.uuid4(): bytes(16000), uuid.UUID(int=9): b"x"})
    device = FakeSevDevice(report=_report, table=table)

    assert guest(device).report(_DATA)[1] == table
    assert device.commands == [SNP_GET_EXT_REPORT] * 2


def test_a_table_that_would_never_fit(guest: Callable[..., SevGuest]) -> None:
    device = FakeSevDevice(report=_report, table=bytes(256 * 1024 + 1))
    with pytest.raises(TeeUnavailable, match="strange size"):
        guest(device).report(_DATA)

    stubborn = FakeSevDevice(report=_report, faults=[(errno.EIO, 1)] * 100)
    with pytest.raises(TeeUnavailable, match="strange size"):
        guest(stubborn).report(_DATA)
    assert len(stubborn.commands) == 1


def test_no_table_and_no_extended_request(guest: Callable[..., SevGuest]) -> None:
    assert guest(FakeSevDevice(report=_report)).report(_DATA) == (_report(_DATA), b"")

    old = FakeSevDevice(report=_report, has_extended=False)
    assert guest(old).report(_DATA) == (_report(_DATA), b"")
    assert old.commands == [SNP_GET_EXT_REPORT, SNP_GET_REPORT]


def test_a_busy_host_is_asked_again(guest: Callable[..., SevGuest]) -> None:
    faults = [(errno.EIO, 2), (errno.EBUSY, 0), (errno.EINTR, 0), (errno.EAGAIN, 0)]
    device = FakeSevDevice(report=_report, faults=faults)

    assert guest(device).report(_DATA)[0] == _report(_DATA)
    assert len(device.commands) == 5


def test_a_device_that_fails(guest: Callable[..., SevGuest], tmp_path: Path) -> None:
    with pytest.raises(TeeUnavailable):
        guest(FakeSevDevice(report=_report, faults=[(errno.EIO, 0)])).report(_DATA)
    with pytest.raises(TeeUnavailable, match="No such file"):
        SevGuest(device=tmp_path / "none").report(_DATA)


def test_a_firmware_that_refuses(guest: Callable[..., SevGuest]) -> None:
    with pytest.raises(MalformedEvidence):
        guest(FakeSevDevice(report=_report, status=0x16)).report(_DATA)


def test_report_data_of_another_length(guest: Callable[..., SevGuest]) -> None:
    device = FakeSevDevice(report=_report)
    with pytest.raises(ValueError, match="want 64"):
        guest(device).report(_DATA[:32])
    assert not device.commands


def test_what_a_verifier_may_use_of_a_table() -> None:
    vcek, ask, ark = _TEE.vek(), _TEE.issuer(), _TEE.ark()

    whole = table_endorsements(cert_table({"ARK": ark, "ASK": ask, "VCEK": vcek}))
    assert whole is not None
    assert (whole.vek, whole.crl) == (vcek, None)
    assert fingerprints(whole.chain) == fingerprints(_TEE.chain())

    alone = table_endorsements(cert_table({"VCEK": vcek, "ASK": ask}))
    assert alone is not None
    assert (alone.vek, alone.chain) == (vcek, b"")

    vlek = table_endorsements(cert_table({"VLEK": b"vlek", "VCEK": vcek, "ASK": ask, "ARK": ark}))
    assert vlek is not None
    assert (vlek.vek, vlek.chain) == (b"vlek", b"")

    for nothing in (b"", bytes(24), cert_table({"ASK": ask}), cert_table({"VCEK": b""})):
        assert table_endorsements(nothing) is None


@pytest.mark.parametrize(
    "table",
    [
        b"\x01",
        bytes(23),
        cert_table({"VCEK": b"x"})[:24],
        cert_table({"VCEK": b"xy"})[:-1],
        _GUIDS["VCEK"].bytes + struct.pack("<II", 0xFFFFFFFF, 1) + bytes(24),
        _GUIDS["VCEK"].bytes + struct.pack("<II", 0, 0xFFFFFFFF) + bytes(24),
        (_GUIDS["VCEK"].bytes + struct.pack("<II", 0, 1)) * 2 + bytes(24),
        b"".join(bytes([n + 1]) * 16 + struct.pack("<II", 0, 0) for n in range(17)) + bytes(24),
        bytes(24) + bytes(256 * 1024),
    ],
)
def test_broken_tables(table: bytes) -> None:
    with pytest.raises(MalformedEvidence):
        parse_cert_table(table)


def test_certificates_in_a_table_that_are_none() -> None:
    with pytest.raises(MalformedEvidence):
        table_endorsements(cert_table({"VCEK": b"v", "ASK": b"junk", "ARK": b"junk"}))


def test_mutated_tables_raise_only_our_errors() -> None:
    rng = random.Random(7)
    good = cert_table({"VCEK": _TEE.vek(), "ASK": _TEE.issuer(), "ARK": _TEE.ark()})
    for _ in range(2000):
        data = bytearray(good[: rng.randrange(len(good)) if rng.random() < 0.2 else len(good)])
        for _ in range(rng.randrange(1, 4)):
            if data:
                data[rng.randrange(min(len(data), 120))] = rng.randrange(256)
        with suppress(MalformedEvidence):
            table_endorsements(bytes(data))

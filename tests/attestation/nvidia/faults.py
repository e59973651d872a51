"""Device Evidence with exactly one fault each, and the one code that must be found.

Every case is Evidence of a test device with one fact changed and everything signed anew where the
change needs it, so exactly one check may fail. All are judged at AT for NONCE.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from attestation.nvidia import opaque
from attestation.nvidia.report import REQUEST_BYTES, SIGNATURE_BYTES
from tests.attestation.nvidia.device import (
    AT,
    FWID,
    GPU_ITEMS,
    NONCE,
    RECORD_AT,
    RECORD_LENGTH_AT,
    RESPONSE_AT,
    ROOT,
    SHA256_OID,
    DevicePki,
    FakeDevice,
    blackwell,
    board_gpu,
    composite_device_id,
    fwid_element,
    hopper,
    item,
    pem,
    switch,
    tcb_info,
)

OTHER_FWID = bytes(47) + b"\1"
Certificates = list[x509.Certificate]


@dataclass(frozen=True, kw_only=True)
class DeviceEvidence:
    """What one device sends, PEM by certificate, and what it was asked."""

    arch: str
    chain: tuple[bytes, ...]
    report: bytes
    nonce: bytes = NONCE


@dataclass(frozen=True)
class Fault:
    """``code`` None is Evidence that is good although it is unusual."""

    change: str
    code: str | None
    make: Callable[[], DeviceEvidence]


def evidence(device: FakeDevice, arch: str = "HOPPER") -> DeviceEvidence:
    """Good Evidence of a device."""
    return DeviceEvidence(arch=arch, chain=_pems(device.certificates()), report=device.report())


def _pems(certificates: Certificates) -> tuple[bytes, ...]:
    return tuple(pem([certificate]) for certificate in certificates)


def _chain(change: Callable[[Certificates], object]) -> DeviceEvidence:
    certificates = hopper().certificates()
    change(certificates)
    return replace(evidence(hopper()), chain=_pems(certificates))


def _signed(change: Callable[[bytearray], object]) -> DeviceEvidence:
    """Bytes before the signature changed, then signed."""
    return replace(evidence(hopper()), report=hopper().report(change=change))


def _byte(offset: int, value: int) -> DeviceEvidence:
    def change(data: bytearray) -> None:
        assert data[offset] != value
        data[offset] = value

    return _signed(change)


def _report(change: Callable[[bytes], bytes]) -> DeviceEvidence:
    """The finished report changed."""
    good = evidence(hopper())
    return replace(good, report=change(good.report))


def _items(**items: bytes) -> DeviceEvidence:
    return evidence(hopper(0, **items))


def _without(type_id: int) -> DeviceEvidence:
    kept = {key: value for key, value in GPU_ITEMS.items() if key != type_id}
    return evidence(replace(hopper(), items=kept))


def _appended(raw: bytes) -> DeviceEvidence:
    """Raw bytes after the last opaque item, and counted."""
    at = hopper().opaque_at

    def change(data: bytearray) -> None:
        size = int.from_bytes(data[at : at + 2], "little") + len(raw)
        data[at : at + 2] = size.to_bytes(2, "little")
        data += raw

    return _signed(change)


def _named(
    extensions: tuple[x509.ExtensionType, ...], device: FakeDevice | None = None
) -> FakeDevice:
    return replace(device or hopper(), leaf_extensions=extensions)


def _with_leaf_key(key: ec.EllipticCurvePublicKey) -> DeviceEvidence:
    return _chain(lambda chain: chain.__setitem__(0, hopper().leaf(public_key=key)))


def _flip_certificate_signature(chain: Certificates) -> None:
    """Leaf signed by a boot ROM of the same name with another key."""
    chain[0] = replace(hopper(), pki=DevicePki(seed=b"other boot ROM")).leaf(
        public_key=hopper().pki.key(hopper().key_name).public_key()
    )


def _intermediate_is_no_ca(chain: Certificates) -> None:
    provisioner, line = "NVIDIA GH100 Provisioner ICA 1", "NVIDIA GH100 Identity"
    chain[2] = hopper().pki.issue(provisioner, line, is_ca=False)


def _swap(first: int, second: int) -> Callable[[Certificates], None]:
    def change(chain: Certificates) -> None:
        chain[first], chain[second] = chain[second], chain[first]

    return change


class _Renamed(FakeDevice):
    """A device whose leaf has a name of its own."""

    @property
    def leaf_name(self) -> str:
        return "GB100 A01 GSP FMC LF"


class _BootRomAsLeaf(FakeDevice):
    """A boot ROM's certificate that another boot ROM made."""

    @property
    def leaf_name(self) -> str:
        return "GH100 A02 GSP BROM"


class _FirmwareAsIssuer(FakeDevice):
    """Firmware that certified other firmware."""

    @property
    def boot_rom_name(self) -> str:
        return "GH100 A02 GSP FMC LF"


class _AnotherLeaf(FakeDevice):
    """Something else that a boot ROM certified."""

    @property
    def leaf_name(self) -> str:
        return "GH100 A01 GSP DEBUG LF"


def _expired_line(chain: Certificates) -> None:
    day = timedelta(days=1)
    chain[3] = hopper().pki.issue("NVIDIA GH100 Identity", ROOT, not_after=AT - day)


def _use_slot(data: bytearray, slot: int) -> None:
    data[REQUEST_BYTES - 1] = data[RESPONSE_AT + 3] = slot


def _duplicate_index(data: bytearray) -> None:
    data[RECORD_AT + 55] = 1


def _short_block(data: bytearray) -> None:
    """The last block holds a digest of 47 bytes."""
    start = RECORD_AT + 55 * 63
    data[start : start + 55] = (
        bytes([64, 1]) + (50).to_bytes(2, "little") + b"\1" + (47).to_bytes(2, "little") + bytes(47)
    )
    length = 3520 - 1
    data[RECORD_LENGTH_AT : RECORD_LENGTH_AT + 3] = length.to_bytes(3, "little")


def _signed_by_response_only(report: bytes) -> bytes:
    signed = report[:-SIGNATURE_BYTES]
    return signed + hopper().pki.sign(hopper().key_name, signed[REQUEST_BYTES:])


def _r_zero(report: bytes) -> bytes:
    return report[:-SIGNATURE_BYTES] + bytes(48) + report[-48:]


_P256 = ec.derive_private_key(7, ec.SECP256R1()).public_key()
_OTHER = DevicePki(seed=b"another root")

FAULTS = (
    Fault("firmware that the report does not name", None, lambda: _without(opaque.FWID)),
    Fault("an item of unknown type", None, lambda: _appended(item(200, b"new"))),
    Fault("certificate slot 1", None, lambda: _signed(lambda data: _use_slot(data, 1))),
    Fault("a GPU of a board", None, lambda: evidence(board_gpu())),
    # 1. chain
    Fault("own root", "untrusted_root", lambda: evidence(replace(hopper(), pki=_OTHER))),
    Fault("intermediate missing", "chain_length", lambda: _chain(lambda chain: chain.pop(2))),
    Fault("root missing", "chain_length", lambda: _chain(lambda chain: chain.pop())),
    Fault("leaf twice", "chain_length", lambda: _chain(lambda chain: chain.insert(0, chain[0]))),
    Fault("intermediates swapped", "chain_order", lambda: _chain(_swap(2, 3))),
    Fault(
        "leaf of another boot ROM", "chain_signature", lambda: _chain(_flip_certificate_signature)
    ),
    Fault("intermediate that is no CA", "chain", lambda: _chain(_intermediate_is_no_ca)),
    Fault(
        "leaf that is a CA",
        "chain",
        lambda: _chain(lambda chain: chain.__setitem__(0, hopper().leaf(is_ca=True))),
    ),
    Fault("leaf on P-256", "bad_key", lambda: _with_leaf_key(_P256)),
    Fault(
        "leaf expired",
        "certificate_time",
        lambda: _chain(
            lambda chain: chain.__setitem__(0, hopper().leaf(not_after=AT - timedelta(days=1)))
        ),
    ),
    Fault("product line expired", "certificate_time", lambda: _chain(_expired_line)),
    Fault(
        "firmware of another chip than its boot ROM",
        "signer_role",
        lambda: evidence(_Renamed(leaf_extensions=hopper().leaf_extensions)),
    ),
    Fault("leaf in another role", "signer_role", lambda: evidence(_AnotherLeaf())),
    Fault("boot ROM as leaf", "signer_role", lambda: evidence(_BootRomAsLeaf())),
    Fault("firmware as issuer", "signer_role", lambda: evidence(_FirmwareAsIssuer())),
    Fault("unknown chip", "unsupported_gpu", lambda: evidence(replace(hopper(), chip="GA100"))),
    Fault("labelled as another architecture", "gpu_arch", lambda: evidence(hopper(), "BLACKWELL")),
    Fault(
        "firmware id twice in the leaf",
        "format",
        lambda: evidence(
            _named((composite_device_id(fwid_element(FWID)), tcb_info(fwid_element(FWID))))
        ),
    ),
    Fault(
        "firmware id of another algorithm",
        "format",
        lambda: evidence(_named((composite_device_id(fwid_element(FWID, SHA256_OID)),))),
    ),
    Fault(
        "firmware id of 47 bytes",
        "format",
        lambda: evidence(_named((composite_device_id(fwid_element(FWID[:47])),))),
    ),
    Fault(
        "composite device id with a fourth member",
        "format",
        lambda: evidence(_named((composite_device_id(fwid_element(FWID) + fwid_element(FWID)),))),
    ),
    Fault(
        "composite device id without firmware id",
        "format",
        lambda: evidence(_named((composite_device_id(b""),))),
    ),
    Fault(
        "TCB info without firmware ids",
        "format",
        lambda: evidence(_named((tcb_info(b""),), blackwell()), "BLACKWELL"),
    ),
    # 2. format
    Fault("empty report", "format", lambda: _report(lambda _: b"")),
    Fault("request alone", "format", lambda: _report(lambda report: report[:REQUEST_BYTES])),
    Fault("cut short", "format", lambda: _report(lambda report: report[:-1])),
    Fault("a byte too many", "trailing_bytes", lambda: _report(lambda report: report + b"\0")),
    Fault("request of SPDM 1.2", "unsupported_version", lambda: _byte(0, 0x12)),
    Fault("another request", "format", lambda: _byte(1, 0xE1)),
    Fault("no signature requested", "format", lambda: _byte(2, 0)),
    Fault("one measurement requested", "format", lambda: _byte(3, 1)),
    Fault("slot 8", "format", lambda: _signed(lambda data: _use_slot(data, 8))),
    Fault("response of SPDM 1.0", "unsupported_version", lambda: _byte(RESPONSE_AT, 0x10)),
    Fault("another response", "format", lambda: _byte(RESPONSE_AT + 1, 0x7F)),
    Fault("response param1 set", "format", lambda: _byte(RESPONSE_AT + 2, 1)),
    Fault("answer by another slot", "format", lambda: _byte(RESPONSE_AT + 3, 1)),
    Fault("63 blocks counted", "format", lambda: _byte(RESPONSE_AT + 4, 63)),
    Fault("no blocks counted", "format", lambda: _byte(RESPONSE_AT + 4, 0)),
    Fault("no blocks at all", "format", lambda: evidence(replace(hopper(), num_blocks=0))),
    Fault("record one byte longer", "format", lambda: _byte(RECORD_LENGTH_AT, 0xC1)),
    Fault("record beyond the report", "format", lambda: _byte(RECORD_LENGTH_AT + 2, 1)),
    Fault("an index twice", "format", lambda: _signed(_duplicate_index)),
    Fault("index 0", "format", lambda: _byte(RECORD_AT, 0)),
    Fault("index 65 of 64", "format", lambda: _byte(RECORD_AT + 55 * 63, 65)),
    Fault("another measurement specification", "format", lambda: _byte(RECORD_AT + 1, 2)),
    Fault("block sizes that disagree", "format", lambda: _byte(RECORD_AT + 2, 50)),
    Fault("digest of 47 bytes", "format", lambda: _signed(_short_block)),
    Fault("opaque data too long", "format", lambda: _byte(hopper().opaque_at + 1, 0x7F)),
    Fault("opaque item cut short", "format", lambda: _appended(b"\xc8\0\4\0abc")),
    Fault("opaque item header cut short", "format", lambda: _appended(b"\xc8\0\0")),
    Fault("opaque item twice", "format", lambda: _appended(item(opaque.FWID, FWID))),
    Fault("opaque item of the invalid type", "format", lambda: _appended(item(255, b""))),
    Fault(
        "too many opaque items",
        "format",
        lambda: _appended(b"".join(item(300 + number, b"") for number in range(64))),
    ),
    Fault("no driver version", "format", lambda: _without(opaque.DRIVER_VERSION)),
    Fault("empty driver version", "format", lambda: _items(driver_version=b"\0")),
    Fault("driver version not a word", "format", lambda: _items(driver_version=b"590/12\0")),
    Fault("text after the end of text", "format", lambda: _items(driver_version=b"590\0.12")),
    Fault("driver version too long", "format", lambda: _items(driver_version=b"5" * 65)),
    Fault("no VBIOS version", "format", lambda: _without(opaque.VBIOS_VERSION)),
    Fault("VBIOS version of 7 bytes", "format", lambda: _items(vbios_version=bytes(7))),
    Fault(
        "VBIOS version of six parts",
        "format",
        lambda: _items(vbios_version=bytes.fromhex("00a5009601010000")),
    ),
    Fault("decoder neither on nor off", "format", lambda: _items(nvdec0_status=b"\0")),
    Fault("PCIe neither protected nor not", "format", lambda: _items(protected_pcie_status=b"\1")),
    Fault("unknown feature", "format", lambda: _items(feature_flag=b"\3\0")),
    Fault("firmware id of 32 bytes", "format", lambda: _items(fwid=FWID[:32])),
    Fault("half a PDI", "format", lambda: _items(pdis=bytes(12))),
    Fault("more links than there are", "format", lambda: _items(pdis=bytes(8 * 19))),
    Fault("counts of 3 bytes", "format", lambda: _items(measurement_counts=bytes(3))),
    Fault(
        "feature against PCIe status",
        "format",
        lambda: _items(protected_pcie_status=b"\xaa", feature_flag=b"\1\0"),
    ),
    Fault("switch without version", "format", lambda: evidence(switch(vbios_version=b""), "LS10")),
    Fault("switch with two PDIs", "format", lambda: evidence(switch(pdis=bytes(16)), "LS10")),
    Fault("switch with seven GPUs", "format", lambda: evidence(switch(gpu_pdis=bytes(56)), "LS10")),
    # 3. nonce
    Fault(
        "another nonce asked for",
        "nonce_mismatch",
        lambda: replace(evidence(hopper()), nonce=bytes(32)),
    ),
    Fault(
        "nonce of 31 bytes", "nonce_length", lambda: replace(evidence(hopper()), nonce=NONCE[:31])
    ),
    # 4. signature
    Fault(
        "signature flipped",
        "report_signature",
        lambda: _report(lambda report: report[:-1] + bytes([report[-1] ^ 1])),
    ),
    Fault("signature with r zero", "report_signature", lambda: _report(_r_zero)),
    Fault("response signed alone", "report_signature", lambda: _report(_signed_by_response_only)),
    Fault(
        "measurement changed",
        "report_signature",
        lambda: _report(lambda report: report[:60] + bytes([report[60] ^ 1]) + report[61:]),
    ),
    Fault(
        "report of another GPU",
        "report_signature",
        lambda: replace(evidence(hopper()), report=hopper(1).report()),
    ),
    # 5. firmware id
    Fault("another firmware in the report", "fwid_mismatch", lambda: _items(fwid=OTHER_FWID)),
    Fault("firmware only in the report", "fwid_mismatch", lambda: evidence(_named(()))),
    Fault(
        "second firmware id of Blackwell",
        "fwid_mismatch",
        lambda: evidence(
            _named((tcb_info(fwid_element(OTHER_FWID) + fwid_element(FWID)),), blackwell()),
            "BLACKWELL",
        ),
    ),
)

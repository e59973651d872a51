"""What does a device say about itself beside its measurements?  [NVIDIA opaque data, version 1]

Opaque data are items of type, size and value. A known item has its one form or the report is
refused; an item of unknown type is kept as it came; no item occurs twice.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from attestation.errors import MalformedEvidence
from attestation.nvidia.reader import Reader

DeviceKind = Literal["gpu", "switch"]
FeatureMode = Literal["spt", "mpt", "ppcie"]

MAX_ITEMS = 64
MAX_TEXT_BYTES = 64
FWID_BYTES = 48
PDI_BYTES = 8
MAX_LINKS = 18  # NVLinks of one GPU
NUM_SWITCH_GPUS = 8
DISABLED_PDI = bytes(PDI_BYTES)  # what a link that is off reports

DRIVER_VERSION = 3
VBIOS_VERSION = 6
NVDEC0_STATUS = 11
MEASUREMENT_COUNTS = 12
BOARD_ID = 14
CHIP_SKU = 15
PROJECT = 17
PROJECT_SKU = 18
FWID = 20
PROTECTED_PCIE_STATUS = 21
PDIS = 22  # a GPU's switches, one a link; a switch's own
GPU_PDIS = 26
CHIP_INFO = 35
FEATURE_FLAG = 36
INVALID = 255

_NAMES = {
    1: "cert_issuer_name",
    2: "authority_key_identifier",
    DRIVER_VERSION: "driver_version",
    4: "gpu_info",
    5: "sku",
    VBIOS_VERSION: "vbios_version",
    7: "manufacturer_id",
    8: "tamper_detection",
    9: "smc",
    10: "vpr",
    NVDEC0_STATUS: "nvdec0_status",
    MEASUREMENT_COUNTS: "measurement_counts",
    13: "cpr_info",
    BOARD_ID: "board_id",
    CHIP_SKU: "chip_sku",
    16: "chip_sku_mod",
    PROJECT: "project",
    PROJECT_SKU: "project_sku",
    19: "project_sku_mod",
    FWID: "fwid",
    PROTECTED_PCIE_STATUS: "protected_pcie_status",
    PDIS: "pdis",
    23: "floorswept_ports",
    24: "position_id",
    25: "lock_status",
    GPU_PDIS: "gpu_pdis",
    27: "switch_ports",
    32: "gpu_link_conn",
    33: "sys_enable_status",
    34: "opaque_version",
    CHIP_INFO: "chip_info",
    FEATURE_FLAG: "feature_flag",
}
_TEXTS = frozenset({DRIVER_VERSION, CHIP_SKU, 16, PROJECT, PROJECT_SKU, 19, CHIP_INFO})
_TEXT = re.compile(rb"([0-9A-Za-z._-]*)\0*")  # versions and SKUs become part of a RIM's name
_STATUS = {b"\xaa": True, b"\x55": False}
_FEATURES: dict[bytes, FeatureMode] = {b"\0\0": "spt", b"\1\0": "mpt", b"\2\0": "ppcie"}
_GPU_VBIOS_BYTES = 8
_GPU_VBIOS_ZEROS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class OpaqueData:
    """Decoded items; None or empty is an item that the device did not send.

    PDIs are as a switch names itself; links that are off are left out. ``raw`` has every item by
    type, known or not.
    """

    driver_version: str | None
    vbios_version: str
    is_nvdec0_enabled: bool | None
    measurement_counts: tuple[int, ...]
    chip_sku: str | None
    project: str | None
    project_sku: str | None
    chip_info: str | None
    fwid: bytes | None
    is_protected_pcie: bool | None
    feature: FeatureMode | None
    switch_pdis: frozenset[bytes]
    device_pdi: bytes | None
    gpu_pdis: frozenset[bytes]
    raw: tuple[tuple[int, bytes], ...]


def parse_opaque(reader: Reader, kind: DeviceKind) -> OpaqueData:
    """Everything ``reader`` holds.  Raises: MalformedEvidence("format")."""
    items = _read_items(reader)
    is_gpu = kind == "gpu"
    driver_version = _text(items, DRIVER_VERSION)
    if is_gpu and not driver_version:
        raise MalformedEvidence("format", "report: a GPU without driver version")
    return OpaqueData(
        driver_version=driver_version,
        vbios_version=_vbios_version(items, is_gpu),
        is_nvdec0_enabled=_status(items, NVDEC0_STATUS),
        measurement_counts=_measurement_counts(items),
        chip_sku=_text(items, CHIP_SKU),
        project=_text(items, PROJECT),
        project_sku=_text(items, PROJECT_SKU),
        chip_info=_text(items, CHIP_INFO),
        fwid=_of_size(items, FWID, FWID_BYTES),
        is_protected_pcie=_status(items, PROTECTED_PCIE_STATUS),
        feature=_feature(items),
        switch_pdis=_switch_pdis(items) if is_gpu else frozenset(),
        device_pdi=None if is_gpu else _of_size(items, PDIS, PDI_BYTES),
        gpu_pdis=frozenset() if is_gpu else _gpu_pdis(items),
        raw=tuple(items.items()),
    )


def item_name(type_id: int) -> str:
    """The name of an item's type; ``unknown_<type>`` for one that is not known."""
    return _NAMES.get(type_id, f"unknown_{type_id}")


def _read_items(reader: Reader) -> dict[int, bytes]:
    items: dict[int, bytes] = {}
    while reader.num_unread:
        type_id = reader.uint(2, "opaque.type")
        size = reader.uint(2, "opaque.size")
        if type_id in items or type_id == INVALID or len(items) == MAX_ITEMS:
            raise MalformedEvidence(
                "format", "report: an opaque item repeats, is invalid or one too many"
            )
        name = f"opaque.{item_name(type_id)}"
        items[type_id] = reader.take(size, name, is_text=type_id in _TEXTS)
    return items


def _text(items: Mapping[int, bytes], type_id: int) -> str | None:
    raw = items.get(type_id)
    if raw is None:
        return None
    match = _TEXT.fullmatch(raw)
    if match is None or len(raw) > MAX_TEXT_BYTES:
        raise _wrong(type_id, "not a short word padded with NUL")
    return match[1].decode("ascii")


def _vbios_version(items: Mapping[int, bytes], is_gpu: bool) -> str:
    """``96.00.9F.00.01``: text from a switch, from a GPU eight packed bytes, least first."""
    if not is_gpu:
        text = _text(items, VBIOS_VERSION)
        if not text:
            raise _wrong(VBIOS_VERSION, "missing")
        return text.upper()
    raw = _of_size(items, VBIOS_VERSION, _GPU_VBIOS_BYTES)
    if raw is None:
        raise _wrong(VBIOS_VERSION, "missing")
    number = raw[::-1]
    if any(number[:_GPU_VBIOS_ZEROS]):
        raise _wrong(VBIOS_VERSION, "more than five parts")
    return ".".join(f"{part:02X}" for part in (*number[4:], number[3]))


def _status(items: Mapping[int, bytes], type_id: int) -> bool | None:
    raw = items.get(type_id)
    if raw is not None and raw not in _STATUS:
        raise _wrong(type_id, "neither on nor off")
    return None if raw is None else _STATUS[raw]


def _feature(items: Mapping[int, bytes]) -> FeatureMode | None:
    raw = items.get(FEATURE_FLAG)
    if raw is not None and raw not in _FEATURES:
        raise _wrong(FEATURE_FLAG, "no feature that is known")
    return None if raw is None else _FEATURES[raw]


def _measurement_counts(items: Mapping[int, bytes]) -> tuple[int, ...]:
    raw = items.get(MEASUREMENT_COUNTS, b"")
    if len(raw) % 4:
        raise _wrong(MEASUREMENT_COUNTS, "not a list of 32-bit numbers")
    return tuple(int.from_bytes(raw[at : at + 4], "little") for at in range(0, len(raw), 4))


def _switch_pdis(items: Mapping[int, bytes]) -> frozenset[bytes]:
    """A GPU names the switch at each link in the reverse of the order a switch uses itself."""
    raw = items.get(PDIS, b"")
    if len(raw) % PDI_BYTES or len(raw) > MAX_LINKS * PDI_BYTES:
        raise _wrong(PDIS, f"not at most {MAX_LINKS} PDIs")
    return frozenset(pdi[::-1] for pdi in _pdis(raw))


def _gpu_pdis(items: Mapping[int, bytes]) -> frozenset[bytes]:
    """The first eight PDIs; which port leads to which of them follows, and is not used."""
    raw = items.get(GPU_PDIS)
    if raw is None:
        return frozenset()
    if len(raw) < NUM_SWITCH_GPUS * PDI_BYTES:
        raise _wrong(GPU_PDIS, f"less than {NUM_SWITCH_GPUS} PDIs")
    return frozenset(_pdis(raw[: NUM_SWITCH_GPUS * PDI_BYTES]))


def _pdis(raw: bytes) -> list[bytes]:
    pdis = [raw[at : at + PDI_BYTES] for at in range(0, len(raw), PDI_BYTES)]
    return [pdi for pdi in pdis if pdi != DISABLED_PDI]


def _of_size(items: Mapping[int, bytes], type_id: int, num_bytes: int) -> bytes | None:
    raw = items.get(type_id)
    if raw is not None and len(raw) != num_bytes:
        raise _wrong(type_id, f"{len(raw)} bytes, want {num_bytes}")
    return raw


def _wrong(type_id: int, what: str) -> MalformedEvidence:
    return MalformedEvidence("format", f"report: opaque {item_name(type_id)}: {what}")

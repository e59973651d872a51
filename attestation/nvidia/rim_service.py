"""Under which id is a RIM served, and what did the service answer?  [NVIDIA RIM service API v1]

The parts of an id come from a signed report. The answer is transport only: it must be whole,
and trust comes from the signature of the RIM inside: see ``attestation.nvidia.rim``.
"""

import base64
import binascii
import hashlib
import re
from typing import Literal

from attestation.errors import MalformedEvidence
from attestation.nvidia.xmldsig import MAX_DOCUMENT_BYTES
from attestation.strict_json import parse_object, sha256_hex, text

RimArchitecture = Literal["HOPPER", "BLACKWELL"]

MAX_ANSWER_BYTES = 2 * MAX_DOCUMENT_BYTES  # base64 of a document, and its envelope
_MAX_DEPTH = 2
_DEFAULT_BLACKWELL_CHIP = "GB100"
_SWITCH_BOARD = "5612_0002_890"  # the one LS10 board that has RIMs; its reports do not name it
_PART = re.compile(r"[A-Za-z0-9]{1,16}")
_VERSION = re.compile(r"[A-Za-z0-9]{1,8}(\.[A-Za-z0-9]{1,8}){1,7}")


def driver_rim_id(architecture: RimArchitecture, driver_version: str, *, chip: str | None) -> str:
    """``chip`` is the report's CHIP_INFO, or None when it has none; Hopper has one chip.

    Raises: MalformedEvidence("format"): a part that cannot be in an id.
    """
    version = _require(_VERSION, driver_version, "driver version")
    if architecture == "HOPPER":
        return f"NV_GPU_DRIVER_GH100_{version}"
    return f"NV_GPU_CC_DRIVER_{_require(_PART, chip or _DEFAULT_BLACKWELL_CHIP, 'chip')}_{version}"


def vbios_rim_id(*, project: str, project_sku: str, chip_sku: str, vbios_version: str) -> str:
    """Raises: MalformedEvidence("format"): a part that cannot be in an id."""
    board = "_".join(
        _require(_PART, part, what).upper()
        for part, what in (
            (project, "project"),
            (project_sku, "project SKU"),
            (chip_sku, "chip SKU"),
        )
    )
    return f"NV_GPU_VBIOS_{board}_{_undotted(vbios_version)}"


def switch_rim_id(bios_version: str) -> str:
    """Raises: MalformedEvidence("format"): a version that cannot be in an id."""
    return f"NV_SWITCH_BIOS_{_SWITCH_BOARD}_{_undotted(bios_version)}"


def parse_rim_answer(data: bytes, *, rim_id: str) -> bytes:
    """The RIM of an answer {id, rim, sha256, ...}: not verified, but the one asked for and whole.

    What ``sha256`` is taken over is not documented: the file and its base64 both count.

    Raises: MalformedEvidence("format").
    """
    what = "RIM service answer"
    answer = parse_object(data, what=what, max_bytes=MAX_ANSWER_BYTES, max_depth=_MAX_DEPTH)
    if answer.get("id") != rim_id:
        raise MalformedEvidence("format", f"{what}: not for {rim_id}")
    encoded = text(answer.get("rim"), f"{what}: rim")
    try:
        rim = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as err:
        raise MalformedEvidence("format", f"{what}: rim is not base64") from err
    want = sha256_hex(answer.get("sha256"), f"{what}: sha256")
    if want not in (hashlib.sha256(whole).hexdigest() for whole in (rim, encoded.encode("ascii"))):
        raise MalformedEvidence("format", f"{what}: rim does not have its sha256")
    return rim


def _undotted(version: str) -> str:
    return _require(_VERSION, version, "VBIOS version").replace(".", "").upper()


def _require(pattern: re.Pattern[str], part: str, what: str) -> str:
    if pattern.fullmatch(part) is None:
        raise MalformedEvidence("format", f"RIM id: {what} has an unusual form")
    return part

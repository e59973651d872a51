"""What does AMD vouch for, and in which bytes does it arrive?  [AMD 57230; linux/sev-guest.h]

Unverified bytes only. A root among them counts when its fingerprint is pinned, not otherwise.
"""

import uuid
from dataclasses import dataclass

from attestation.errors import MalformedEvidence

VCEK_GUID, VLEK_GUID, ASK_GUID, ARK_GUID = (
    uuid.UUID(text)
    for text in (
        "63da758d-e664-4564-adc5-f4b93be8accd",
        "a8074bc2-a25a-483e-aae6-39c045a0b8a1",
        "4ab7b379-bbac-4fe4-a02f-05aef327c782",
        "c0b406a4-a803-4952-9743-3fb6014cd0ae",
    )
)
MAX_TABLE_BYTES = 64 * 1024
MAX_TABLE_ENTRIES = 16
_ENTRY_BYTES = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class SnpEndorsements:
    """``vek``: the VCEK or VLEK, DER or PEM. ``chain``: PEM of ASK or ASVK, then ARK.

    ``crl``: what the ARK signed, DER or PEM; None when none came along.
    """

    vek: bytes
    chain: bytes
    crl: bytes | None


def parse_certificate_table(data: bytes) -> dict[uuid.UUID, bytes]:
    """The table that SNP_GET_EXT_REPORT and configfs-tsm's auxblob give: one entry a GUID.

    Entries are (GUID, offset u32, length u32) up to an all-zero one.

    Raises: MalformedEvidence("format").
    """
    if len(data) > MAX_TABLE_BYTES:
        raise MalformedEvidence("format", f"certificate table: {len(data)} bytes")
    found: dict[uuid.UUID, bytes] = {}
    for start in range(0, _ENTRY_BYTES * (MAX_TABLE_ENTRIES + 1), _ENTRY_BYTES):
        entry = data[start : start + _ENTRY_BYTES]
        if len(entry) < _ENTRY_BYTES:
            break
        if not any(entry):
            return found
        guid = uuid.UUID(bytes_le=entry[:16])
        offset, length = (
            int.from_bytes(entry[16:20], "little"),
            int.from_bytes(entry[20:], "little"),
        )
        if guid in found or offset + length > len(data):
            raise MalformedEvidence("format", "certificate table: an entry twice or out of bounds")
        found[guid] = data[offset : offset + length]
    raise MalformedEvidence("format", "certificate table: has no end")

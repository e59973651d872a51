"""What kind of Evidence are these bytes?  By their structure, for a person who did not say.

A guess only picks the parser; what is accepted is the policy's and the verifier's business.
"""

import re
import struct
from typing import Literal, get_args

from attestation.errors import MalformedEvidence
from attestation.tdx.quote import INTEL_QE_VENDOR_ID

Kind = Literal["bundle", "tinfoil", "quote", "snp", "azure-snp", "gpu", "nras", "nitro"]

KINDS: tuple[Kind, ...] = get_args(Kind)
_HEX = re.compile(rb"(?:0x)?([0-9A-Fa-f\s]+)")
_TINFOIL = re.compile(rb'"format"\s*:\s*"https://tinfoil\.sh/')
_SNP_VERSIONS = range(2, 6)
_SNP_ALGORITHM = (0x034, 1)
_SPDM_REQUEST = b"\x11\xe0"  # GET_MEASUREMENTS of version 1.1
_COSE_STARTS = (b"\xd2\x84", b"\x84\x43", b"\x84\x44")  # tagged or bare COSE_Sign1


def unpacked(data: bytes) -> bytes:
    """Hex text decoded, anything else as it is."""
    match = _HEX.fullmatch(data.strip())
    digits = b"" if match is None else b"".join(match[1].split())
    return bytes.fromhex(digits.decode("ascii")) if digits and len(digits) % 2 == 0 else data


def guess_kind(data: bytes) -> Kind:
    """The kind of unpacked Evidence.

    Raises: MalformedEvidence("format"): it looks like nothing that is known here.
    """
    start = data.lstrip()[:1]
    if start == b"{":
        return "tinfoil" if _TINFOIL.search(data) else "bundle"
    if start == b"[":
        return "nras"
    if data[12:28] == INTEL_QE_VENDOR_ID or data[2:4] in (b"\2\0", b"\3\0"):
        return "quote"
    if data.startswith(b"HCLA"):
        return "azure-snp"
    if data.startswith(_SPDM_REQUEST):
        return "gpu"
    if data.startswith(_COSE_STARTS):
        return "nitro"
    if _looks_like_snp(data):
        return "snp"
    raise MalformedEvidence("format", "no kind of Evidence that is known here: say it by --kind")


def _looks_like_snp(data: bytes) -> bool:
    offset, algorithm = _SNP_ALGORITHM
    if len(data) < offset + 4:
        return False
    (version,), (found,) = struct.unpack_from("<I", data), struct.unpack_from("<I", data, offset)
    return version in _SNP_VERSIONS and found == algorithm

"""Which device signed this, and what firmware was its key made for?  [TCG DICE sec. 6, NVIDIA]

A device chain has five certificates on P-384, leaf first: firmware (FMC), boot ROM, provisioner,
product line, root. The root that is sent counts only when it is the pinned one.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from cryptography.x509.oid import ObjectIdentifier

from attestation import der
from attestation.anchors import Anchor, TrustAnchors
from attestation.cache import VerifiedCache, once_chain
from attestation.errors import (
    EndorsementMismatch,
    MalformedEvidence,
    UnsupportedEvidence,
    UntrustedEndorsement,
)
from attestation.nvidia.opaque import FWID_BYTES, DeviceKind
from attestation.x509 import (
    Certificate,
    KeyKind,
    VerifiedChain,
    parse_chain,
    require_chain_current,
    verify_chain,
)

GpuArch = Literal["HOPPER", "BLACKWELL", "LS10"]

CHAIN_LENGTH = 5
_WHAT = "device chain"
_KEY_KINDS: frozenset[KeyKind] = frozenset({"p384"})
_DEVICE_NAME = re.compile(r"(?P<chip>[A-Z]{2}_?\d{2,3}) [A-Z]\d{2} [GF]SP (?P<role>FMC LF|BROM)")
_ARCHS: tuple[tuple[re.Pattern[str], GpuArch], ...] = (
    (re.compile(r"GH\d{3}"), "HOPPER"),
    (re.compile(r"GB\d{3}"), "BLACKWELL"),
    (re.compile(r"LS_10"), "LS10"),
)
_COMPOSITE_DEVICE_ID = ObjectIdentifier("2.23.133.5.4.1")  # Hopper and LS10
_TCB_INFO = ObjectIdentifier("2.23.133.5.4.1.1")  # Blackwell
_SHA384 = bytes.fromhex("608648016503040202")
_FWIDS = 0xA6  # [6] of DiceTcbInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceIdentity:
    """Made by ``verify_device_chain`` alone: a device that NVIDIA certified.

    ``fwid`` is the SHA-384 of the firmware that the leaf's key was made for, None when the leaf
    does not say. ``ueid`` is the leaf's serial number, decimal; ``chip`` is named as RIMs name it.
    """

    arch: GpuArch
    chip: str
    hwmodel: str
    ueid: str
    fwid: bytes | None
    chain: VerifiedChain

    @property
    def kind(self) -> DeviceKind:
        """GPU or switch."""
        return "switch" if self.arch == "LS10" else "gpu"

    @property
    def anchor(self) -> Anchor:
        """The pinned root it ends in."""
        return self.chain.anchor


def verify_device_chain(
    pem: bytes, *, anchors: TrustAnchors, at: datetime, cache: VerifiedCache | None = None
) -> DeviceIdentity:
    """Steps: 1. five certificates; 2. links, pinned root; 3. roles; 4. dates; 5. FWID.

    With a ``cache``, steps 1 and 2 are not done again for a chain that it has seen verified.

    Raises: MalformedEvidence("format"). BadSignature("bad_key"). UnsupportedEvidence:
    unsupported_gpu. UntrustedEndorsement: chain, chain_length, chain_order, chain_signature,
    untrusted_root, signer_role, certificate_time.
    """
    chain = once_chain(  # 1, 2
        cache,
        (_WHAT, pem),
        lambda: _verify_chain(pem, anchors),
        family="nvidia-device",
        anchors=anchors,
    )
    chip = _chip(chain)  # 3
    arch = _arch(chip)
    require_chain_current(chain, at)  # 4
    return DeviceIdentity(
        arch=arch,
        chip=chip.replace("_", ""),
        hwmodel=chain.certificates[1].common_name,
        ueid=str(chain.leaf.serial_number),
        fwid=_fwid(chain.leaf),  # 5
        chain=chain,
    )


def require_fwid(identity: DeviceIdentity, reported: bytes | None) -> None:
    """A report that names its firmware names the one its key was made for.

    Firmware of the 535 drivers and switches report none: then there is nothing to compare, and
    whether that is accepted is policy.

    Raises: EndorsementMismatch("fwid_mismatch").
    """
    if reported is not None and reported != identity.fwid:
        raise EndorsementMismatch("fwid_mismatch", "the report's firmware is not its certificate's")


def _verify_chain(pem: bytes, anchors: TrustAnchors) -> VerifiedChain:
    certificates = parse_chain(pem, what=_WHAT, key_kinds=_KEY_KINDS)
    if len(certificates) != CHAIN_LENGTH:  # 1
        got = len(certificates)
        raise UntrustedEndorsement("chain_length", f"{_WHAT}: {got} certificates, want 5")
    return verify_chain(  # 2
        certificates,
        num_certificates=CHAIN_LENGTH,
        family="nvidia-device",
        anchors=anchors,
        what=_WHAT,
    )


def _chip(chain: VerifiedChain) -> str:
    """The chip that leaf and boot ROM certificates are both of."""
    names = [_DEVICE_NAME.fullmatch(certificate.common_name) for certificate in chain.certificates]
    leaf, boot_rom = names[:2]
    if leaf is None or leaf["role"] != "FMC LF" or boot_rom is None or boot_rom["role"] != "BROM":
        raise UntrustedEndorsement("signer_role", f"{_WHAT}: not a firmware under a boot ROM")
    if leaf["chip"] != boot_rom["chip"]:
        raise UntrustedEndorsement("signer_role", f"{_WHAT}: firmware and boot ROM of two chips")
    return leaf["chip"]


def _arch(chip: str) -> GpuArch:
    for pattern, arch in _ARCHS:
        if pattern.fullmatch(chip):
            return arch
    raise UnsupportedEvidence("unsupported_gpu", f"{_WHAT}: {chip} is not appraised")


def _fwid(leaf: Certificate) -> bytes | None:
    composite, tcb_info = leaf.extension(_COMPOSITE_DEVICE_ID), leaf.extension(_TCB_INFO)
    if composite is not None and tcb_info is not None:
        raise MalformedEvidence("format", f"{_WHAT}: the leaf names its firmware twice")
    if composite is not None:
        members = der.read_all(der.read_one(composite, der.SEQUENCE))
        if len(members) != 3:  # version, device key, FWID
            raise MalformedEvidence("format", f"{_WHAT}: composite device id of another form")
        return _digest(members[2])
    if tcb_info is not None:
        lists = [e for e in der.read_all(der.read_one(tcb_info, der.SEQUENCE)) if e.tag == _FWIDS]
        fwids = der.read_all(lists[0].value) if len(lists) == 1 else ()
        if not fwids:
            raise MalformedEvidence("format", f"{_WHAT}: TCB info without firmware ids")
        return _digest(fwids[0])
    return None


def _digest(fwid: der.Element) -> bytes:
    """The value of FWID ::= SEQUENCE { hashAlg, digest }."""
    members = der.read_all(der.require_tag(fwid, der.SEQUENCE))
    if len(members) != 2 or der.require_tag(members[0], der.OBJECT_IDENTIFIER) != _SHA384:
        raise MalformedEvidence("format", f"{_WHAT}: firmware id is not a SHA-384")
    digest = der.require_tag(members[1], der.OCTET_STRING)
    if len(digest) != FWID_BYTES:
        raise MalformedEvidence("format", f"{_WHAT}: firmware id of {len(digest)} bytes")
    return digest

"""Evidence with exactly one fault each, and the one code that must be found.

Every case is Evidence of FakeTee with one fact changed and everything signed anew where the change
needs it, so exactly one check may fail.  All are judged at AT, for NONCE, under "development".
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import Any

from cryptography import x509

from attestation.fake import FakeTee
from attestation.fake.pki import (
    PCK_CA_NAME,
    PCK_NAME,
    ROOT_NAME,
    TCB_SIGNER_NAME,
    FakePki,
    pem,
)
from attestation.fake.platform import FakePlatform
from attestation.model import EvidenceBundle, GpuEntry
from attestation.tdx.pck import SGX_EXTENSION
from tests.attestation import samples
from tests.attestation.samples import AT, evidence, flip_bit, with_collateral

TEE = FakeTee()
DAY = timedelta(days=1)
SIGNED_BYTES = 632
_SIGNATURE_AT = 636
_KEY_AT = 700
_QE_REPORT_AT = 770
QE_SIGNATURE_AT = 1154


@dataclass(frozen=True)
class _ExpiredPckTee(FakeTee):
    @property
    def pck(self) -> x509.Certificate:
        return self.pki.issue_pck(self.platform.sgx_extension(), not_after=AT - DAY)


@dataclass(frozen=True)
class _OtherRoleTee(FakeTee):
    """Its certificate comes from the right CA and is for something else."""

    @property
    def pck(self) -> x509.Certificate:
        extension = x509.UnrecognizedExtension(SGX_EXTENSION, self.platform.sgx_extension())
        return self.pki._issue("Other leaf", PCK_CA_NAME, path_length=None, extension=extension)


class _OtherCaPki(FakePki):
    """Its platform certificates come from a CA under the root that is no PCK CA."""

    @cached_property
    def pck_ca(self) -> x509.Certificate:
        return self._issue("Other CA", ROOT_NAME, path_length=0)

    def issue_pck(self, sgx_extension: bytes, **_: object) -> x509.Certificate:
        extension = x509.UnrecognizedExtension(SGX_EXTENSION, sgx_extension)
        return self._issue(PCK_NAME, "Other CA", path_length=None, extension=extension)


def on_platform(**changes: object) -> EvidenceBundle:
    return evidence(FakeTee(platform=replace(FakePlatform(), **changes)))  # type: ignore[arg-type]


def _quote(change: Callable[[bytes], bytes]) -> EvidenceBundle:
    bundle = evidence()
    return replace(bundle, quote=change(bundle.quote))


def _flip(offset: int) -> EvidenceBundle:
    return _quote(lambda quote: flip_bit(quote, 8 * offset))


def changed_collateral(**changes: object) -> EvidenceBundle:
    return with_collateral(evidence(), lambda c: replace(c, **changes))  # type: ignore[arg-type]


def _other_platform_info(**changes: object) -> EvidenceBundle:
    """Good quote, but the TCB info describes a platform that differs."""
    platform = replace(FakePlatform(), **changes)  # type: ignore[arg-type]
    text = platform.tcb_info(AT - DAY, AT + DAY)
    return with_collateral(evidence(), samples.resign_tcb_info(TEE, text))


def _other_qe_identity(**changes: object) -> EvidenceBundle:
    platform = replace(FakePlatform(), **changes)  # type: ignore[arg-type]
    text = platform.qe_identity(AT - DAY, AT + DAY)
    return with_collateral(evidence(), samples.resign_qe_identity(TEE, text))


def _rebuilt_tcb_info(change: Callable[[dict[str, Any]], object]) -> EvidenceBundle:
    info = json.loads(FakePlatform().tcb_info(AT - DAY, AT + DAY))
    change(info)
    return with_collateral(evidence(), samples.resign_tcb_info(TEE, json.dumps(info)))


def _edited_tcb_info(old: str, new: str, count: int = -1) -> EvidenceBundle:
    text = FakePlatform().tcb_info(AT - DAY, AT + DAY)
    assert old in text
    return with_collateral(evidence(), samples.resign_tcb_info(TEE, text.replace(old, new, count)))


def _dated(tcb_info: timedelta, qe_identity: timedelta) -> EvidenceBundle:
    """TCB info and QE identity that end (or, when far ahead, start) this long from AT."""

    def window(end: timedelta) -> tuple[timedelta, timedelta]:
        return (end - 10 * DAY, end)

    info = TEE.platform.tcb_info(*(AT + edge for edge in window(tcb_info)))
    identity = TEE.platform.qe_identity(*(AT + edge for edge in window(qe_identity)))
    bundle = with_collateral(evidence(), samples.resign_tcb_info(TEE, info))
    return with_collateral(bundle, samples.resign_qe_identity(TEE, identity))


def _signer_chain(certificate: x509.Certificate) -> EvidenceBundle:
    chain = pem((certificate, TEE.pki.root)).decode()
    return changed_collateral(tcb_info_issuer_chain=chain)


def _reattested() -> EvidenceBundle:
    """An own attestation key signs, with the genuine QE report kept."""

    def change(quote: bytes) -> bytes:
        signed = quote[:SIGNED_BYTES]
        pki = FakePki(seed=b"mine")
        forged = pki.sign("mine", signed) + pki.public_point("mine")
        return quote[:_SIGNATURE_AT] + forged + quote[_KEY_AT + 64 :]

    return _quote(change)


def _qe_signer_chain(certificate: x509.Certificate) -> EvidenceBundle:
    chain = pem((certificate, TEE.pki.root)).decode()
    return changed_collateral(qe_identity_issuer_chain=chain)


_PCK_CRL = TEE.pki.pck_crl
_ROOT_CRL = TEE.pki.root_crl
_OLD_SIGNER = TEE.pki._issue(TCB_SIGNER_NAME, ROOT_NAME, path_length=None, not_after=AT - DAY)
_OTHER_LEAF = TEE.pki._issue("Some other leaf", ROOT_NAME, path_length=None)


@dataclass(frozen=True)
class Case:
    """What was changed, the code it must be rejected with, and the Evidence."""

    change: str
    code: str
    make: Callable[[], EvidenceBundle]


CASES = (
    Case(
        "keyset swapped",
        "channel_binding",
        lambda: replace(evidence(), keyset=samples.keyset(replica="worker-1")),
    ),
    Case(
        "key swapped",
        "channel_binding",
        lambda: replace(evidence(), keyset=samples.keyset(config_sha256="66" * 32)),
    ),
    Case(
        "GPU evidence of unknown worth",
        "gpu_evidence_hash",
        lambda: replace(evidence(), gpu=(GpuEntry(arch="HOPPER", cert_chain=b"c", report=b"r"),)),
    ),
    Case("unknown TEE", "unsupported_tee", lambda: replace(evidence(), tee="sev-snp")),
    Case("fake evidence labelled tdx", "tee_type", lambda: replace(evidence(), tee="tdx")),
    Case("no collateral", "endorsement_missing", lambda: replace(evidence(), collateral=None)),
    Case("bytes after the end", "trailing_bytes", lambda: _quote(lambda quote: quote + b"\0x")),
    Case("cut short", "format", lambda: _quote(lambda quote: quote[:-1])),
    Case("another version", "unsupported_version", lambda: _flip(0)),
    Case("another key type", "unsupported_key_type", lambda: _flip(2)),
    Case("another QE vendor", "qe_vendor", lambda: _flip(12)),
    Case("report data flipped", "quote_signature", lambda: _flip(48 + 520)),
    Case("signature flipped", "quote_signature", lambda: _flip(_SIGNATURE_AT)),
    Case("own attestation key", "qe_binding", _reattested),
    Case("QE report flipped", "qe_report_signature", lambda: _flip(_QE_REPORT_AT)),
    Case("QE signature flipped", "qe_report_signature", lambda: _flip(QE_SIGNATURE_AT)),
    Case("own root", "untrusted_root", lambda: evidence(FakeTee(pki=FakePki(seed=b"mine")))),
    Case("PCK expired", "certificate_time", lambda: evidence(_ExpiredPckTee())),
    Case("PCK in another role", "signer_role", lambda: evidence(_OtherRoleTee())),
    Case("PCK from another CA", "signer_role", lambda: evidence(FakeTee(pki=_OtherCaPki()))),
    Case("TCB signer expired", "certificate_time", lambda: _signer_chain(_OLD_SIGNER)),
    Case("QE signer expired", "certificate_time", lambda: _qe_signer_chain(_OLD_SIGNER)),
    Case("QE signer in another role", "signer_role", lambda: _qe_signer_chain(_OTHER_LEAF)),
    Case(
        "PCK revoked",
        "certificate_revoked",
        lambda: changed_collateral(pck_crl=_PCK_CRL(AT - DAY, AT + DAY, [TEE.pck])),
    ),
    Case(
        "PCK CA revoked",
        "certificate_revoked",
        lambda: changed_collateral(root_ca_crl=_ROOT_CRL(AT - DAY, AT + DAY, [TEE.pki.pck_ca])),
    ),
    Case(
        "TCB signer revoked",
        "certificate_revoked",
        lambda: changed_collateral(root_ca_crl=_ROOT_CRL(AT - DAY, AT + DAY, [TEE.pki.tcb_signer])),
    ),
    Case(
        "PCK CRL expired",
        "crl_expired",
        lambda: changed_collateral(pck_crl=_PCK_CRL(AT - 2 * DAY, AT)),
    ),
    Case(
        "root CRL expired",
        "crl_expired",
        lambda: changed_collateral(root_ca_crl=_ROOT_CRL(AT - 2 * DAY, AT)),
    ),
    Case(
        "PCK CRL of the future",
        "collateral_not_yet_valid",
        lambda: changed_collateral(pck_crl=_PCK_CRL(AT + DAY, AT + 2 * DAY)),
    ),
    Case("PCK CRL missing", "crl_missing", lambda: changed_collateral(pck_crl=b"")),
    Case("PCK CRL is no CRL", "format", lambda: changed_collateral(pck_crl=b"none")),
    Case(
        "PCK CRL is the root's",
        "crl_issuer",
        lambda: changed_collateral(pck_crl=_ROOT_CRL(AT - DAY, AT + DAY)),
    ),
    Case(
        "PCK CRL flipped",
        "crl_signature",
        lambda: with_collateral(
            evidence(), lambda c: replace(c, pck_crl=flip_bit(c.pck_crl, 8 * len(c.pck_crl) - 1))
        ),
    ),
    Case("TCB info expired", "collateral_expired", lambda: _dated(timedelta(0), DAY)),
    Case("QE identity expired", "collateral_expired", lambda: _dated(DAY, timedelta(0))),
    Case("TCB info of the future", "collateral_not_yet_valid", lambda: _dated(11 * DAY, DAY)),
    Case(
        "TCB info edited",
        "tcb_info_signature",
        lambda: with_collateral(
            evidence(), lambda c: replace(c, tcb_info=c.tcb_info.replace("TDX_01", "TDX_02"))
        ),
    ),
    Case(
        "TCB info signature short",
        "tcb_info_signature",
        lambda: changed_collateral(tcb_info_signature=b""),
    ),
    Case(
        "QE identity edited",
        "qe_identity_signature",
        lambda: with_collateral(
            evidence(),
            lambda c: replace(c, qe_identity=c.qe_identity.replace('"isvsvn":4', '"isvsvn":1')),
        ),
    ),
    Case("TCB info for SGX", "tcb_info_mismatch", lambda: _edited_tcb_info('"TDX"', '"SGX"')),
    Case(
        "TCB info without levels",
        "format",
        lambda: _rebuilt_tcb_info(lambda info: info.update(tcbLevels=[])),
    ),
    Case(
        "TCB info with 15 components",
        "format",
        lambda: _rebuilt_tcb_info(
            lambda info: info["tcbLevels"][0]["tcb"]["sgxtcbcomponents"].pop()
        ),
    ),
    Case(
        "TCB info without module identities",
        "tdx_module",
        lambda: _rebuilt_tcb_info(lambda info: info.pop("tdxModuleIdentities")),
    ),
    Case("TCB info that is no JSON", "format", lambda: _edited_tcb_info("{", "", count=1)),
    Case(
        "TCB info of unknown status",
        "format",
        lambda: _edited_tcb_info('"tcbStatus":"UpToDate"', '"tcbStatus":"Fine"'),
    ),
    Case("TCB signer is a CA", "chain", lambda: _signer_chain(TEE.pki.pck_ca)),
    Case("TCB signer in another role", "signer_role", lambda: _signer_chain(_OTHER_LEAF)),
    Case("TCB signer under another CA", "chain_order", lambda: _signer_chain(TEE.pck)),
    Case("wrong FMSPC", "fmspc_mismatch", lambda: _other_platform_info(fmspc=bytes(6))),
    Case("wrong PCEID", "pceid_mismatch", lambda: _other_platform_info(pce_id=b"\0\1")),
    Case(
        "TDX module unknown",
        "tdx_module",
        lambda: _other_platform_info(tee_tcb_svn=bytes([5, 3, 4]) + bytes(13)),
    ),
    Case(
        "TDX module below every level",
        "tcb_no_match",
        lambda: _other_platform_info(tee_tcb_svn=bytes([6, 1, 4]) + bytes(13)),
    ),
    Case(
        "SGX component below every level",
        "tcb_no_match",
        lambda: _other_platform_info(component_svns=(2,) * 9 + (0,) * 6 + (1,)),
    ),
    Case(
        "TDX component below every level",
        "tcb_no_match",
        lambda: _other_platform_info(tee_tcb_svn=bytes([5, 1, 5]) + bytes(13)),
    ),
    Case("PCESVN below every level", "tcb_no_match", lambda: _other_platform_info(pce_svn=12)),
    Case(
        "QE of another product",
        "qe_identity_mismatch",
        lambda: _other_qe_identity(qe_isv_prod_id=3),
    ),
    Case("QE below every level", "qe_identity_mismatch", lambda: _other_qe_identity(qe_isv_svn=5)),
    Case("platform out of date", "tcb_status", lambda: on_platform(tcb_status="OutOfDate")),
    Case("platform revoked", "tcb_status", lambda: on_platform(tcb_status="Revoked")),
    Case("module out of date", "tcb_status", lambda: on_platform(module_status="OutOfDate")),
    Case("QE revoked", "tcb_status", lambda: on_platform(qe_status="Revoked")),
    Case(
        "debug",
        "debug_enabled",
        lambda: on_platform(td_attributes=bytes.fromhex("0100001000000000")),
    ),
    Case(
        "reserved attribute",
        "td_attributes",
        lambda: on_platform(td_attributes=bytes.fromhex("0001001000000000")),
    ),
    Case("SEPT_VE_DISABLE clear", "td_attributes", lambda: on_platform(td_attributes=bytes(8))),
)

"""Each thing that can be wrong with Evidence is found, by its own check and no other.

Every case is Evidence of FakeTee with one fact changed and everything signed anew where the change
needs it, so exactly one check may fail.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest
from cryptography import x509
from hypothesis import given, settings
from hypothesis import strategies as st

from attestation.anchors import load_anchors
from attestation.appraise import appraise_quote
from attestation.fake import FakeTee
from attestation.fake.pki import PCK_NAME, ROOT_NAME, FakePki, pem
from attestation.fake.platform import FakePlatform, fake_digest
from attestation.model import EvidenceBundle, GpuEntry
from attestation.policy import load_policy, parse_policy
from tests.attestation import samples
from tests.attestation.samples import AT, evidence, failures, flip_bit, judge, with_collateral

_TEE = FakeTee()
_DAY = timedelta(days=1)
_SIGNED_BYTES = 632
_SIGNATURE_AT = 636
_KEY_AT = 700
_QE_REPORT_AT = 770
_QE_SIGNATURE_AT = 1154


@dataclass(frozen=True)
class _ExpiredPckTee(FakeTee):
    @property
    def pck(self) -> x509.Certificate:
        return self.pki.issue_pck(self.platform.sgx_extension(), not_after=AT - _DAY)


def _platform(**changes: object) -> EvidenceBundle:
    return evidence(FakeTee(platform=replace(FakePlatform(), **changes)))  # type: ignore[arg-type]


def _quote(change: Callable[[bytes], bytes]) -> EvidenceBundle:
    bundle = evidence()
    return replace(bundle, quote=change(bundle.quote))


def _flip(offset: int) -> EvidenceBundle:
    return _quote(lambda quote: flip_bit(quote, 8 * offset))


def _collateral(**changes: object) -> EvidenceBundle:
    return with_collateral(evidence(), lambda c: replace(c, **changes))  # type: ignore[arg-type]


def _other_platform_info(**changes: object) -> EvidenceBundle:
    """Good quote, but the TCB info describes a platform that differs."""
    platform = replace(FakePlatform(), **changes)  # type: ignore[arg-type]
    text = platform.tcb_info(AT - _DAY, AT + _DAY)
    return with_collateral(evidence(), samples.resign_tcb_info(_TEE, text))


def _other_qe_identity(**changes: object) -> EvidenceBundle:
    platform = replace(FakePlatform(), **changes)  # type: ignore[arg-type]
    text = platform.qe_identity(AT - _DAY, AT + _DAY)
    return with_collateral(evidence(), samples.resign_qe_identity(_TEE, text))


def _edited_tcb_info(old: str, new: str) -> EvidenceBundle:
    text = FakePlatform().tcb_info(AT - _DAY, AT + _DAY)
    assert old in text
    return with_collateral(evidence(), samples.resign_tcb_info(_TEE, text.replace(old, new)))


def _dated(tcb_info: timedelta, qe_identity: timedelta) -> EvidenceBundle:
    """TCB info and QE identity that end (or, when far ahead, start) this long from AT."""

    def window(end: timedelta) -> tuple[timedelta, timedelta]:
        return (end - 10 * _DAY, end)

    info = _TEE.platform.tcb_info(*(AT + edge for edge in window(tcb_info)))
    identity = _TEE.platform.qe_identity(*(AT + edge for edge in window(qe_identity)))
    bundle = with_collateral(evidence(), samples.resign_tcb_info(_TEE, info))
    return with_collateral(bundle, samples.resign_qe_identity(_TEE, identity))


def _signer_chain(certificate: x509.Certificate) -> EvidenceBundle:
    chain = pem((certificate, _TEE.pki.root)).decode()
    return _collateral(tcb_info_issuer_chain=chain)


def _reattested() -> EvidenceBundle:
    """An own attestation key signs, with the genuine QE report kept."""

    def change(quote: bytes) -> bytes:
        signed = quote[:_SIGNED_BYTES]
        pki = FakePki(seed=b"mine")
        forged = pki.sign("mine", signed) + pki.public_point("mine")
        return quote[:_SIGNATURE_AT] + forged + quote[_KEY_AT + 64 :]

    return _quote(change)


_PCK_CRL = _TEE.pki.pck_crl
_ROOT_CRL = _TEE.pki.root_crl
_OTHER_LEAF = _TEE.pki._issue("Some other leaf", ROOT_NAME, path_length=None)

_CASES: dict[str, tuple[str, Callable[[], EvidenceBundle]]] = {
    "keyset swapped": (
        "channel_binding",
        lambda: replace(evidence(), keyset=samples.keyset(replica="worker-1")),
    ),
    "key swapped": (
        "channel_binding",
        lambda: replace(evidence(), keyset=samples.keyset(config_sha256="66" * 32)),
    ),
    "GPU evidence of unknown worth": (
        "unsupported_gpu",
        lambda: replace(evidence(), gpu=(GpuEntry(arch="HOPPER", cert_chain=b"c", report=b"r"),)),
    ),
    "unknown TEE": ("unsupported_tee", lambda: replace(evidence(), tee="sev-snp")),
    "fake evidence labelled tdx": ("tee_type", lambda: replace(evidence(), tee="tdx")),
    "no collateral": ("endorsement_missing", lambda: replace(evidence(), collateral=None)),
    "bytes after the end": ("trailing_bytes", lambda: _quote(lambda quote: quote + b"\0x")),
    "cut short": ("format", lambda: _quote(lambda quote: quote[:-1])),
    "another version": ("unsupported_version", lambda: _flip(0)),
    "another key type": ("unsupported_key_type", lambda: _flip(2)),
    "another QE vendor": ("qe_vendor", lambda: _flip(12)),
    "report data flipped": ("quote_signature", lambda: _flip(48 + 520)),
    "signature flipped": ("quote_signature", lambda: _flip(_SIGNATURE_AT)),
    "own attestation key": ("qe_binding", _reattested),
    "QE report flipped": ("qe_report_signature", lambda: _flip(_QE_REPORT_AT)),
    "QE signature flipped": ("qe_report_signature", lambda: _flip(_QE_SIGNATURE_AT)),
    "own root": ("untrusted_root", lambda: evidence(FakeTee(pki=FakePki(seed=b"mine")))),
    "PCK expired": ("certificate_time", lambda: evidence(_ExpiredPckTee())),
    "PCK revoked": (
        "certificate_revoked",
        lambda: _collateral(pck_crl=_PCK_CRL(AT - _DAY, AT + _DAY, [_TEE.pck])),
    ),
    "PCK CA revoked": (
        "certificate_revoked",
        lambda: _collateral(root_ca_crl=_ROOT_CRL(AT - _DAY, AT + _DAY, [_TEE.pki.pck_ca])),
    ),
    "TCB signer revoked": (
        "certificate_revoked",
        lambda: _collateral(root_ca_crl=_ROOT_CRL(AT - _DAY, AT + _DAY, [_TEE.pki.tcb_signer])),
    ),
    "PCK CRL expired": ("crl_expired", lambda: _collateral(pck_crl=_PCK_CRL(AT - 2 * _DAY, AT))),
    "root CRL expired": (
        "crl_expired",
        lambda: _collateral(root_ca_crl=_ROOT_CRL(AT - 2 * _DAY, AT)),
    ),
    "PCK CRL of the future": (
        "collateral_not_yet_valid",
        lambda: _collateral(pck_crl=_PCK_CRL(AT + _DAY, AT + 2 * _DAY)),
    ),
    "PCK CRL missing": ("crl_missing", lambda: _collateral(pck_crl=b"")),
    "PCK CRL is no CRL": ("format", lambda: _collateral(pck_crl=b"none")),
    "PCK CRL is the root's": (
        "crl_issuer",
        lambda: _collateral(pck_crl=_ROOT_CRL(AT - _DAY, AT + _DAY)),
    ),
    "PCK CRL flipped": (
        "crl_signature",
        lambda: with_collateral(
            evidence(), lambda c: replace(c, pck_crl=flip_bit(c.pck_crl, 8 * len(c.pck_crl) - 1))
        ),
    ),
    "TCB info expired": ("collateral_expired", lambda: _dated(timedelta(0), _DAY)),
    "QE identity expired": ("collateral_expired", lambda: _dated(_DAY, timedelta(0))),
    "TCB info of the future": ("collateral_not_yet_valid", lambda: _dated(11 * _DAY, _DAY)),
    "TCB info edited": (
        "tcb_info_signature",
        lambda: with_collateral(
            evidence(), lambda c: replace(c, tcb_info=c.tcb_info.replace("TDX_01", "TDX_02"))
        ),
    ),
    "TCB info signature short": ("tcb_info_signature", lambda: _collateral(tcb_info_signature=b"")),
    "QE identity edited": (
        "qe_identity_signature",
        lambda: with_collateral(
            evidence(),
            lambda c: replace(c, qe_identity=c.qe_identity.replace('"isvsvn":4', '"isvsvn":1')),
        ),
    ),
    "TCB info for SGX": ("tcb_info_mismatch", lambda: _edited_tcb_info('"TDX"', '"SGX"')),
    "TCB info without levels": ("format", lambda: _edited_tcb_info('"tcbLevels":[{"tcb":{"sg', "")),
    "TCB info of unknown status": (
        "format",
        lambda: _edited_tcb_info('"tcbStatus":"UpToDate"', '"tcbStatus":"Fine"'),
    ),
    "TCB signer is a CA": ("chain", lambda: _signer_chain(_TEE.pki.pck_ca)),
    "TCB signer in another role": ("signer_role", lambda: _signer_chain(_OTHER_LEAF)),
    "TCB signer under another CA": ("chain_order", lambda: _signer_chain(_TEE.pck)),
    "wrong FMSPC": ("fmspc_mismatch", lambda: _other_platform_info(fmspc=bytes(6))),
    "wrong PCEID": ("pceid_mismatch", lambda: _other_platform_info(pce_id=b"\0\1")),
    "TDX module unknown": (
        "tdx_module",
        lambda: _other_platform_info(tee_tcb_svn=bytes([5, 3, 4]) + bytes(13)),
    ),
    "TDX module below every level": (
        "tcb_no_match",
        lambda: _other_platform_info(tee_tcb_svn=bytes([6, 1, 4]) + bytes(13)),
    ),
    "SGX component below every level": (
        "tcb_no_match",
        lambda: _other_platform_info(component_svns=(2,) * 9 + (0,) * 6 + (1,)),
    ),
    "TDX component below every level": (
        "tcb_no_match",
        lambda: _other_platform_info(tee_tcb_svn=bytes([5, 1, 5]) + bytes(13)),
    ),
    "PCESVN below every level": ("tcb_no_match", lambda: _other_platform_info(pce_svn=12)),
    "QE of another product": (
        "qe_identity_mismatch",
        lambda: _other_qe_identity(qe_isv_prod_id=3),
    ),
    "QE below every level": ("qe_identity_mismatch", lambda: _other_qe_identity(qe_isv_svn=5)),
    "platform out of date": ("tcb_status", lambda: _platform(tcb_status="OutOfDate")),
    "platform revoked": ("tcb_status", lambda: _platform(tcb_status="Revoked")),
    "module out of date": ("tcb_status", lambda: _platform(module_status="OutOfDate")),
    "QE revoked": ("tcb_status", lambda: _platform(qe_status="Revoked")),
    "debug": (
        "debug_enabled",
        lambda: _platform(td_attributes=bytes.fromhex("0100001000000000")),
    ),
    "reserved attribute": (
        "td_attributes",
        lambda: _platform(td_attributes=bytes.fromhex("0001001000000000")),
    ),
    "SEPT_VE_DISABLE clear": ("td_attributes", lambda: _platform(td_attributes=bytes(8))),
}


def test_good_evidence_is_accepted_as_a_warning_because_it_is_simulated() -> None:
    result = judge(evidence())

    assert (result.tier, result.code, result.is_accepted) == ("warning", None, True)
    assert failures(result) == []
    assert (result.simulated, result.trust_anchor) == (True, "starshade-FAKE-tee-root")
    assert any("SIMULATED" in c.reason for c in result.checks if c.outcome == "warn")
    assert any("simulated" in gap for gap in result.not_covered)
    assert any(gap.startswith("measurements") for gap in result.not_covered)
    assert result.claims["tcb_status"] == "UpToDate"
    assert result.claims["mrtd"] == fake_digest("MRTD").hex()
    assert result.not_after == AT + timedelta(minutes=5)  # the keyset ends first


def test_production_refuses_simulated_evidence() -> None:
    result = judge(evidence(), policy="production")

    assert (result.tier, result.code) == ("contraindicated", "untrusted_root")
    assert not result.is_accepted
    assert result.not_after == AT


@pytest.mark.parametrize("name", _CASES)
def test_one_fault_fails_one_check(name: str) -> None:
    code, make = _CASES[name]

    result = judge(make())

    assert failures(result) == [code]
    assert result.code == code
    assert not result.is_accepted
    assert result.tier in ("contraindicated", "none")


def test_another_nonce_fails() -> None:
    result = judge(evidence(), nonce=samples.OTHER_NONCE)

    assert failures(result) == ["nonce_mismatch"]


def test_an_ended_keyset_fails() -> None:
    result = judge(evidence(), at=AT + timedelta(minutes=5))

    assert failures(result) == ["keyset_expired"]


def test_all_policy_findings_are_listed_and_the_first_gives_the_code() -> None:
    result = judge(_platform(td_attributes=b"\1" + bytes(7), tcb_status="OutOfDate"))

    assert failures(result) == ["debug_enabled", "td_attributes", "tcb_status"]
    assert result.code == "debug_enabled"
    assert result.claims["tcb_status"] == "OutOfDate"


def _policy(**replacements: str) -> str:
    lines = {
        "statuses": 'statuses = ["UpToDate"]',
        "advisories": "advisories = []",
        "floor": "min_evaluation_data_number = 17",
        "mode": 'mode = "not_checked"',
    } | replacements
    return f"""
name = "test"
anchors = ["fake"]
tee_types = ["tdx"]
[tcb]
{lines["statuses"]}
{lines["advisories"]}
{lines["floor"]}
[td]
debug = "refused"
service_td = "refused"
septve_disable = "required"
[measurements]
{lines["mode"]}
"""


def test_a_status_the_policy_names_is_a_warning_with_its_advisories_allowed() -> None:
    text = FakePlatform(tcb_status="SWHardeningNeeded").tcb_info(AT - _DAY, AT + _DAY)
    text = text.replace('"SWHardeningNeeded"', '"SWHardeningNeeded","advisoryIDs":["INTEL-SA-1"]')
    text = text.replace("INTEL-SA-1", "INTEL-SA-00001")
    bundle = with_collateral(evidence(), samples.resign_tcb_info(_TEE, text))
    statuses = 'statuses = ["UpToDate", "SWHardeningNeeded"]'
    allowed = _policy(statuses=statuses, advisories='advisories = ["INTEL-SA-00001"]')

    without_advisory = judge(bundle, policy=parse_policy(_policy(statuses=statuses).encode()))
    with_advisory = judge(bundle, policy=parse_policy(allowed.encode()))

    assert failures(without_advisory) == ["tcb_status"]
    assert (with_advisory.tier, with_advisory.code) == ("warning", None)
    assert with_advisory.claims["advisories"] == ("INTEL-SA-00001",)


def test_old_collateral_is_below_the_floor() -> None:
    policy = parse_policy(_policy(floor="min_evaluation_data_number = 21").encode())

    assert failures(judge(evidence(), policy=policy)) == ["tcb_evaluation_floor"]


def test_measurements_are_compared_when_the_policy_has_them() -> None:
    want, other = fake_digest("MRTD").hex(), "00" * 48
    good = parse_policy(_policy(mode=f'mode = "required"\nmrtd = ["{want}"]').encode())
    bad = parse_policy(_policy(mode=f'mode = "required"\nmrtd = ["{other}"]').encode())

    accepted, rejected = judge(evidence(), policy=good), judge(evidence(), policy=bad)

    assert accepted.is_accepted
    assert not any(gap.startswith("measurements") for gap in accepted.not_covered)
    assert failures(rejected) == ["measurement_mismatch"]


def test_a_bare_quote_says_what_was_not_judged() -> None:
    quote, collateral = _TEE.attest(bytes(64), at=AT)
    policy, anchors = load_policy("development"), load_anchors()

    result = appraise_quote(quote, collateral, policy=policy, anchors=anchors, at=AT)
    stale = appraise_quote(
        quote,
        collateral,
        policy=policy,
        anchors=anchors,
        at=AT,
        expected_report_data=b"\1" + bytes(63),
    )

    assert result.is_accepted
    assert any(gap.startswith("freshness") for gap in result.not_covered)
    assert any(gap.startswith("channel") for gap in result.not_covered)
    assert ("report_data", "not_applicable") in [(c.name, c.outcome) for c in result.checks]
    assert failures(stale) == ["report_data"]


def test_the_same_question_gets_the_same_verdict_id() -> None:
    first, again = judge(evidence()), judge(evidence())
    later = judge(evidence(), at=AT + timedelta(seconds=1))

    assert first == again
    assert first.verdict_id != later.verdict_id


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 8 * _SIGNED_BYTES - 1))
def test_any_flipped_bit_of_the_signed_part_rejects(bit: int) -> None:
    bundle = evidence()

    result = judge(replace(bundle, quote=flip_bit(bundle.quote, bit)))

    assert not result.is_accepted


@settings(max_examples=60, deadline=None)
@given(st.integers(8 * _SIGNED_BYTES, 8 * (_QE_SIGNATURE_AT + 64) - 1))
def test_any_flipped_bit_of_keys_and_signatures_rejects(bit: int) -> None:
    bundle = evidence()

    result = judge(replace(bundle, quote=flip_bit(bundle.quote, bit)))

    assert not result.is_accepted


def test_the_pck_key_signs_nothing_else() -> None:
    """TCB info signed by the PCK key is refused although the key is genuine."""
    forged = _TEE.pki.sign(PCK_NAME, _TEE.collateral(AT).tcb_info.encode())

    assert failures(judge(_collateral(tcb_info_signature=forged))) == ["tcb_info_signature"]

"""Whatever is changed in genuine SNP Evidence: it is refused, and by an error of ours."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from attestation.checks import CheckLog
from attestation.errors import AttestationError
from attestation.snp.azure import parse_hcl, require_runtime
from attestation.snp.endorsements import SnpEndorsements
from attestation.snp.report import REPORT_BYTES, parse_report
from attestation.snp.tpm import parse_tpm_quote, parse_tpm_signature
from attestation.snp.verifier import SnpVerifier, VerifiedVek, verify_report
from tests.attestation.samples import flip_bit
from tests.attestation.snp.azure_samples import HCL, QUOTE, QUOTE_SIGNATURE
from tests.attestation.snp.samples import ANCHORS, evidence, verify
from tests.support.fake_snp import AT

_GOOD = evidence()
_NUM_MUTATIONS = 2000


def _vek() -> VerifiedVek:
    endorsements = SnpEndorsements(vek=_GOOD.vek, chain=_GOOD.chain, crl=_GOOD.crl)
    return SnpVerifier(anchors=ANCHORS).verify_endorsements(endorsements, log=CheckLog())


def test_any_flipped_bit_of_a_report_rejects() -> None:
    """All of it: 0..0x29F is signed, then r and s, and what is left must be zero."""
    vek = _vek()
    verify_report(parse_report(_GOOD.report), vek, at=AT, log=CheckLog())

    accepted = []
    for bit in range(8 * REPORT_BYTES):
        try:
            report = parse_report(flip_bit(_GOOD.report, bit))
            verify_report(report, vek, at=AT, log=CheckLog())
        except AttestationError:
            continue
        accepted.append(bit)

    assert accepted == []


def _mutate(data: bytes, rng: random.Random) -> bytes:
    """One to three changes of the kinds that parsers trip over."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(changed) + 1)
        span = rng.choice((1, 2, 4, 16, 200))
        change = rng.randrange(6)
        if change == 0 and changed:
            changed[min(at, len(changed) - 1)] ^= 1 << rng.randrange(8)
        elif change == 1:
            changed[at : at + span] = rng.randbytes(len(changed[at : at + span]))
        elif change == 2:
            del changed[at : at + span]
        elif change == 3:
            changed[at:at] = rng.randbytes(span)
        elif change == 4:
            changed[at : at + span] = rng.choice((b"\0", b"\xff")) * len(changed[at : at + span])
        else:
            source = rng.randrange(len(data))
            changed[at : at + span] = data[source : source + span]
    return bytes(changed)


def _verify_hcl(blob: bytes) -> None:
    hcl = parse_hcl(blob)
    require_runtime(hcl, verify(replace(_GOOD, report=hcl.report)).report_data)


@pytest.mark.parametrize(
    ("data", "judge"),
    [
        (_GOOD.report, lambda data: verify(replace(_GOOD, report=data))),
        (_GOOD.vek, lambda data: verify(replace(_GOOD, vek=data))),
        (_GOOD.chain, lambda data: verify(replace(_GOOD, chain=data))),
        (_GOOD.crl, lambda data: verify(replace(_GOOD, crl=data))),
        (HCL, _verify_hcl),
        (QUOTE, parse_tpm_quote),
        (QUOTE_SIGNATURE, parse_tpm_signature),
    ],
    ids=["report", "vek", "chain", "crl", "hcl", "quote", "quote-signature"],
)
def test_mutations_raise_only_our_errors(data: bytes, judge: Callable[[bytes], object]) -> None:
    rng = random.Random(20260101)
    num_refused = 0
    for _ in range(_NUM_MUTATIONS):
        try:
            judge(_mutate(data, rng))
        except AttestationError:
            num_refused += 1
    assert num_refused > _NUM_MUTATIONS // 4  # most changes matter; white space in PEM does not

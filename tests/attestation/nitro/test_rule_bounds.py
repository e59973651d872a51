"""Nitro rules at their edges: each launch PCR, the age of a document, the numbers of a policy."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from attestation.checks import CheckLog
from attestation.errors import AttestationError
from attestation.nitro.rules import MAX_AGE_S, MAX_CLOCK_SKEW_S, DebugOff, DocumentRecent
from attestation.nitro.verifier import NitroClaims
from tests.attestation.nitro.judging import VERIFIER
from tests.attestation.nitro.samples import AT, PCRS, POLICY, good_document
from tests.attestation.nitro.test_rules import _read

_GOOD = VERIFIER.verify(good_document().to_bytes(), at=AT, log=CheckLog())


def _with(**changes: Any) -> NitroClaims:
    return replace(_GOOD, document=replace(_GOOD.document, **changes))


@pytest.mark.parametrize("index", [0, 1, 2])
def test_each_launch_pcr_that_is_zero_means_debug(index: int) -> None:
    missing = {key: value for key, value in PCRS.items() if key != index}
    for pcrs in ({**PCRS, index: bytes(48)}, missing):
        with pytest.raises(AttestationError) as caught:
            DebugOff().require(_with(pcrs=pcrs))
        assert caught.value.code == "debug_enabled"


def test_other_pcrs_may_be_zero() -> None:
    DebugOff().require(_with(pcrs={**PCRS, 3: bytes(48), 8: bytes(48)}))


@pytest.mark.parametrize(
    ("age_s", "is_good"), [(-61, False), (-60, True), (0, True), (30, True), (31, False)]
)
def test_a_document_is_recent_to_the_second(age_s: int, is_good: bool) -> None:
    claims, rule = _with(made_at=AT - timedelta(seconds=age_s)), DocumentRecent(max_age_s=30)

    assert MAX_CLOCK_SKEW_S == 60
    if is_good:
        rule.require(claims)
        return
    with pytest.raises(AttestationError) as caught:
        rule.require(claims)
    assert caught.value.code == "evidence_age"


def test_a_verdict_ends_when_the_document_is_too_old() -> None:
    end = DocumentRecent(max_age_s=30).end(_with(made_at=AT))

    assert timedelta(seconds=30) <= end - AT <= timedelta(seconds=31)


def test_a_policy_asks_for_at_most_a_day() -> None:
    assert MAX_AGE_S == 86400
    assert _read({**POLICY, "max_age_s": 86400})[1] == []
    assert len(_read({**POLICY, "max_age_s": 86401})[1]) == 1

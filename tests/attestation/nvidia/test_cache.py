"""A cache changes how long a device's verdict takes and nothing else, whatever it saw before."""

from dataclasses import replace
from datetime import datetime, timedelta
from functools import cache
from typing import NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attestation.anchors import TrustAnchors
from attestation.cache import VerifiedCache
from attestation.checks import CheckLog
from attestation.errors import AttestationError
from attestation.model import Check, GpuEntry
from attestation.nvidia import chain
from attestation.nvidia.verifier import GpuClaims, GpuVerifier
from tests.attestation.nvidia.device import AT, hopper
from tests.attestation.nvidia.faults import FAULTS, DeviceEvidence

_ANCHORS = hopper().pki.anchors
_NO_ROOT = TrustAnchors(anchors=())
_RENAMED = TrustAnchors(
    anchors=tuple(replace(anchor, kind="foreign", name="mine") for anchor in _ANCHORS.anchors)
)
_DAY = timedelta(days=1)
_Outcome = tuple[GpuClaims | str, tuple[Check, ...]]


def _judge(
    evidence: DeviceEvidence,
    known: VerifiedCache | None,
    anchors: TrustAnchors = _ANCHORS,
    at: datetime = AT,
) -> _Outcome:
    """Claims or the code, and every check on the way."""
    log = CheckLog()
    entry = GpuEntry(
        arch=evidence.arch, cert_chain=b"".join(evidence.chain), report=evidence.report
    )
    try:
        claims = GpuVerifier(anchors=anchors, cache=known).verify(
            entry, nonce=evidence.nonce, at=at, log=log, rims=None
        )
    except AttestationError as err:
        return err.code, tuple(log.checks)
    return claims, tuple(log.checks)


@cache
def _all() -> tuple[DeviceEvidence, ...]:
    return tuple(fault.make() for fault in FAULTS)


def _good() -> DeviceEvidence:
    return next(fault.make() for fault in FAULTS if fault.code is None)


def test_every_fault_twice() -> None:
    known = VerifiedCache()

    for evidence in _all():
        cold = _judge(evidence, None)
        assert _judge(evidence, known) == cold
        assert _judge(evidence, known) == cold
    assert len(known) > 0


@settings(deadline=None, max_examples=60)
@given(
    steps=st.lists(
        st.tuples(
            st.integers(min_value=0, max_value=len(FAULTS) - 1),
            st.sampled_from((_ANCHORS, _NO_ROOT, _RENAMED)),
            st.sampled_from((-40 * 365, -1, 0, 0, 1, 40 * 365)),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_any_history_leaves_the_verdict_as_it_is(
    steps: list[tuple[int, TrustAnchors, int]],
) -> None:
    known = VerifiedCache()
    for index, anchors, days in steps:
        evidence, at = _all()[index], AT + days * _DAY
        assert _judge(evidence, known, anchors, at) == _judge(evidence, None, anchors, at)


def test_a_chain_that_was_verified_is_not_verified_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("verified again")

    known = VerifiedCache()
    first = _judge(_good(), known)
    monkeypatch.setattr(chain, "verify_chain", refuse)

    assert isinstance(first[0], GpuClaims)
    assert _judge(_good(), known) == first


def test_signature_and_nonce_of_a_report_are_never_cached() -> None:
    known, good = VerifiedCache(), _good()
    assert isinstance(_judge(good, known)[0], GpuClaims)
    changed = bytearray(good.report)
    changed[-1] ^= 1

    assert _judge(replace(good, report=bytes(changed)), known)[0] == "report_signature"
    assert _judge(replace(good, nonce=bytes(32)), known)[0] == "nonce_mismatch"

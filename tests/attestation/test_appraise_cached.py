"""With a cache a verdict is as without one, and what was verified is not verified again."""

from datetime import timedelta
from typing import NoReturn

import pytest

from attestation.anchors import load_anchors
from attestation.appraise import appraise
from attestation.cache import VerifiedCache
from attestation.model import AttestationResult, EvidenceBundle
from attestation.nvidia import chain as nvidia_chain
from attestation.policy import load_policy
from attestation.snp import verifier as snp_verifier
from attestation.tdx import verifier
from tests.attestation import sessions
from tests.attestation.cases import CASES
from tests.attestation.samples import AT, NONCE, evidence, judge


def _judge(
    bundle: EvidenceBundle, cache: VerifiedCache, *, late: timedelta = timedelta()
) -> AttestationResult:
    return appraise(
        bundle,
        nonce=NONCE,
        policy=load_policy("development"),
        anchors=load_anchors(),
        at=AT + late,
        cache=cache,
    )


def _refuse(*_: object, **__: object) -> NoReturn:
    raise AssertionError("verified again")


def test_the_verdict_on_every_case_is_the_same() -> None:
    cache = VerifiedCache()

    for bundle in [case.make() for case in CASES] * 2:
        assert _judge(bundle, cache) == judge(bundle)
    assert len(cache) > 0


def test_what_was_verified_is_not_verified_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cache, bundle = VerifiedCache(), evidence()
    first = _judge(bundle, cache)
    for name in ("verify_chain", "verify_crl", "verify_tcb_info", "verify_qe_identity"):
        monkeypatch.setattr(verifier, name, _refuse)

    assert _judge(bundle, cache) == first
    assert first.is_accepted


def test_a_cache_keeps_nothing_alive_beyond_its_end() -> None:
    cache, bundle = VerifiedCache(), evidence()
    assert _judge(bundle, cache).is_accepted

    late = _judge(bundle, cache, late=timedelta(days=400))

    assert late == judge(bundle, at=AT + timedelta(days=400))
    assert not late.is_accepted


@pytest.mark.parametrize("tee", ["fake-tdx", "snp"])
def test_the_cache_serves_cpu_and_gpus_alike(tee: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, whole = VerifiedCache(), sessions.bundle(gpu=(sessions.gpu_entry(),), tee=tee)
    without = sessions.judge_bundle(whole)
    first = sessions.judge_bundle(whole, cache=cache)
    for module in (verifier, snp_verifier, nvidia_chain):
        monkeypatch.setattr(module, "verify_chain", _refuse)

    assert sessions.judge_bundle(whole, cache=cache) == first == without
    assert first.is_accepted

"""NVIDIA's own OCSP answers, and the rules that need more than one answer or argument."""

import json
import random
import time
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import ocsp

from attestation.errors import AttestationError
from attestation.nvidia.ocsp import MAX_AGE, VerifiedOcsp, verify_chain_ocsp, verify_ocsp
from attestation.x509 import (
    Certificate,
    KeyKind,
    VerifiedChain,
    parse_certificate,
    parse_chain,
    verify_chain,
)
from tests.attestation.samples import flip_bit
from tests.support.resources import vectors_dir
from tests.vectors.nvidia_refs.pki import AT, L2, Ocsp, anchors, chain

_P384: frozenset[KeyKind] = frozenset({"p384"})
_NONCE = bytes(range(32))
_NUM_CASES = 15
_NUM_MUTATIONS = 2000
_MAX_SECONDS = 30.0
_FLIP_EVERY = 5  # bits
# ``cryptography`` warns of a country of other than two letters, which a changed name may have.
_NAMES = pytest.mark.filterwarnings("ignore:Attribute's length must be")


def _folder() -> Path:
    return vectors_dir() / "attestation" / "nvidia"


def _cases() -> list[dict[str, Any]]:
    cases = json.loads((_folder() / "manifest.json").read_text())["cases"]
    return [case for case in cases if case["expected"].get("stage") == "ocsp"]


def _certificate(name: str) -> Certificate:
    (certificate,) = parse_chain((_folder() / name).read_bytes(), what=name, key_kinds=_P384)
    return certificate


def _published(name: str) -> tuple[bytes, Certificate, Certificate, datetime]:
    case = next(case for case in _cases() if case["id"] == f"ocsp-{name}")
    inputs = case["inputs"]
    return (
        (_folder() / inputs["ocsp"]).read_bytes(),
        _certificate(inputs["subject"]),
        _certificate(inputs["issuer"]),
        datetime.fromisoformat(case["verify_at"]),
    )


def _certificates() -> tuple[Certificate, ...]:
    return tuple(
        parse_certificate(c.public_bytes(Encoding.DER), what="test", key_kinds=_P384)
        for c in chain()
    )


_ANSWERS = (
    "gpu_certificate_l2",
    "gpu_certificate_l3",
    "gpu_certificate_l4",
    "gpu_driver_rim_l3",
    "gpu_driver_rim_l4",
)


def test_published_cases() -> None:
    cases = _cases()
    problems = {}
    for case in cases:
        inputs, expected = case["inputs"], case["expected"]
        nonce = {"nonce required": _NONCE, "no nonce required": None}[case["policy"]]
        try:
            got: str = verify_ocsp(
                (_folder() / inputs["ocsp"]).read_bytes(),
                subject=_certificate(inputs["subject"]),
                issuer=_certificate(inputs["issuer"]),
                at=datetime.fromisoformat(case["verify_at"]),
                nonce=nonce,
            ).status
        except AttestationError as err:
            got = err.code
        if got != expected.get("status", expected.get("error_class")):
            problems[case["id"]] = got

    assert problems == {}
    assert len(cases) == _NUM_CASES


@pytest.mark.parametrize("name", _ANSWERS)
def test_an_answer_is_for_one_certificate_of_one_issuer(name: str) -> None:
    answer, subject, issuer, at = _published(name)
    for other in _ANSWERS:
        if other == name:
            continue
        _, other_subject, other_issuer, _ = _published(other)
        with pytest.raises(AttestationError) as caught:
            verify_ocsp(answer, subject=other_subject, issuer=other_issuer, at=at, nonce=None)
        assert caught.value.code == "crl_issuer"
        with pytest.raises(AttestationError) as caught:
            verify_ocsp(answer, subject=other_subject, issuer=issuer, at=at, nonce=None)
        assert caught.value.code == "crl_issuer"
        if other_issuer.sha256 != issuer.sha256:
            with pytest.raises(AttestationError) as caught:
                verify_ocsp(answer, subject=subject, issuer=other_issuer, at=at, nonce=None)
            assert caught.value.code == "crl_issuer"


def test_an_answer_ends_with_its_responders_certificate() -> None:
    made, end = Ocsp(), AT + timedelta(minutes=10)
    short = replace(made, responder=replace(made.responder, not_after=end))
    signer, l3, *_ = _certificates()

    def judge(at: datetime) -> VerifiedOcsp:
        return verify_ocsp(short.make(), subject=signer, issuer=l3, at=at, nonce=None)

    assert judge(AT).next_update == end
    with pytest.raises(AttestationError) as caught:
        judge(end + timedelta(seconds=1))
    assert caught.value.code == "certificate_time"


@pytest.mark.parametrize("name", _ANSWERS)
def test_an_answer_ends(name: str) -> None:
    answer, subject, issuer, _ = _published(name)
    start = ocsp.load_der_ocsp_response(answer).this_update_utc

    def judge(at: datetime, max_age: timedelta = MAX_AGE) -> VerifiedOcsp:
        return verify_ocsp(
            answer, subject=subject, issuer=issuer, at=at, nonce=None, max_age=max_age
        )

    assert judge(start).next_update == start + timedelta(hours=24)
    assert judge(start, timedelta(hours=1)).next_update == start + timedelta(hours=1)
    for at, max_age, code in (
        (start - timedelta(seconds=1), MAX_AGE, "collateral_not_yet_valid"),
        (start + timedelta(hours=24), MAX_AGE, "crl_expired"),
        (start + timedelta(hours=1), timedelta(hours=1), "crl_expired"),
        (start + timedelta(hours=24), timedelta(days=90), "crl_expired"),
        (start, timedelta(0), "crl_expired"),
    ):
        with pytest.raises(AttestationError) as caught:
            judge(at, max_age)
        assert caught.value.code == code


@pytest.mark.parametrize("name", _ANSWERS)
def test_grace_begins_where_an_answer_ends(name: str) -> None:
    """Until then it changes nothing; from then on the answer is late, and ends with its grace."""
    answer, subject, issuer, _ = _published(name)
    start = ocsp.load_der_ocsp_response(answer).this_update_utc
    end, hour, instant = start + MAX_AGE, timedelta(hours=1), timedelta(microseconds=1)

    def judge(at: datetime, grace: timedelta = hour) -> VerifiedOcsp:
        return verify_ocsp(answer, subject=subject, issuer=issuer, at=at, nonce=None, grace=grace)

    for at, is_late, not_after in (
        (start, False, end),
        (end - instant, False, end),
        (end, True, end + hour),
        (end + hour - instant, True, end + hour),
    ):
        made = judge(at)
        assert (made.is_late, made.not_after, made.next_update) == (is_late, not_after, end)
    for at, grace in (
        (end, timedelta(0)),
        (end + hour, hour),
        (end, -hour),
        (end - instant, -hour),
    ):
        with pytest.raises(AttestationError) as caught:
            judge(at, grace)
        assert caught.value.code == "crl_expired"


def test_grace_ends_with_the_responders_certificate() -> None:
    made, end = Ocsp(next_update=AT), AT + timedelta(minutes=10)
    short = replace(made, responder=replace(made.responder, not_after=end))
    signer, l3, *_ = _certificates()

    def judge(at: datetime) -> VerifiedOcsp:
        return verify_ocsp(
            short.make(), subject=signer, issuer=l3, at=at, nonce=None, grace=timedelta(days=1)
        )

    assert (judge(AT).not_after, judge(AT).is_late) == (end, True)
    assert judge(end).not_after == end
    with pytest.raises(AttestationError) as caught:
        judge(end + timedelta(seconds=1))
    assert caught.value.code == "certificate_time"


@_NAMES
@pytest.mark.parametrize("name", _ANSWERS)
def test_any_flipped_bit_is_refused(name: str) -> None:
    answer, subject, issuer, at = _published(name)

    for bit in range(0, 8 * len(answer), _FLIP_EVERY):
        try:
            verify_ocsp(flip_bit(answer, bit), subject=subject, issuer=issuer, at=at, nonce=None)
        except AttestationError:
            continue
        pytest.fail(f"bit {bit} may be changed")


@_NAMES
def test_mutations_raise_only_our_errors() -> None:
    rng = random.Random(20260302)
    pool = [_published(name) for name in _ANSWERS]
    started = time.process_time()

    for _ in range(_NUM_MUTATIONS):
        answer, subject, issuer, at = rng.choice(pool)
        changed = bytearray(answer)
        for _ in range(rng.randint(1, 4)):
            start = rng.randrange(len(changed) + 1)
            end = min(len(changed), start + rng.choice((1, 2, 4, 32, 256)))
            match rng.randrange(4):
                case 0:
                    changed[start:end] = rng.randbytes(end - start)
                case 1:
                    del changed[start:end]
                case 2:
                    changed[start:start] = changed[start:end]
                case _:
                    changed[start:end] = rng.choice(pool)[0][start:end]
        if bytes(changed) == answer:
            continue
        with pytest.raises(AttestationError):
            verify_ocsp(bytes(changed), subject=subject, issuer=issuer, at=at, nonce=None)

    assert time.process_time() - started < _MAX_SECONDS


def _rim_chain() -> VerifiedChain:
    return verify_chain(
        _certificates(),
        num_certificates=4,
        family="nvidia-rim",
        anchors=anchors(),
        what="test",
    )


def _device_chain() -> VerifiedChain:
    """The same certificates, as if a device had sent them."""
    rim = _rim_chain()
    return replace(rim, anchor=replace(rim.anchor, family="nvidia-device"))


_SIGNER = Ocsp()
_L3 = Ocsp(subject="l3", responder=replace(_SIGNER.responder, issuer=L2))
_HOLD = {
    "status": ocsp.OCSPCertStatus.REVOKED,
    "reason": x509.ReasonFlags.certificate_hold,
}


def _judge_l3(chain: VerifiedChain, answer: Ocsp, **options: Any) -> str:
    """A device's chain is asked about without its leaf: here that leaves two certificates."""
    short = replace(chain, certificates=chain.certificates[:3])  # signer, L3, and L2 as the root
    answers = (answer,) if chain.anchor.family == "nvidia-device" else (_SIGNER, answer)
    results = verify_chain_ocsp(
        short,
        [a.make() for a in answers],
        at=AT,
        nonces=[a.nonce for a in answers],
        **options,
    )
    return results[-1].status


def test_a_chain_is_asked_about_one_by_one() -> None:
    assert _judge_l3(_rim_chain(), _L3) == "good"
    assert _judge_l3(_device_chain(), _L3) == "good"
    assert _judge_l3(_rim_chain(), replace(_L3, nonce=_NONCE)) == "good"


def test_each_answer_of_a_chain_has_the_same_grace() -> None:
    late = replace(_L3, next_update=AT)

    for chain_of_kind in (_rim_chain(), _device_chain()):
        assert _judge_l3(chain_of_kind, late, grace=timedelta(seconds=1)) == "good"
        with pytest.raises(AttestationError) as caught:
            _judge_l3(chain_of_kind, late)
        assert caught.value.code == "crl_expired"


def test_a_chain_with_an_answer_left_out() -> None:
    answer = _SIGNER.make()
    for family_chain, answers in (
        (_rim_chain(), []),
        (_rim_chain(), [answer]),
        (_device_chain(), [answer]),
        (_rim_chain(), [answer] * 4),
    ):
        with pytest.raises(AttestationError) as caught:
            verify_chain_ocsp(family_chain, answers, at=AT, nonces=[None] * len(answers))
        assert caught.value.code == "crl_missing"
    with pytest.raises(AttestationError) as caught:
        verify_chain_ocsp(_rim_chain(), [answer] * 3, at=AT, nonces=[])
    assert caught.value.code == "crl_missing"


def test_answers_in_another_order() -> None:
    short = replace(_rim_chain(), certificates=_rim_chain().certificates[:3])

    with pytest.raises(AttestationError) as caught:
        verify_chain_ocsp(short, [_L3.make(), _SIGNER.make()], at=AT, nonces=[None, None])

    assert caught.value.code == "crl_issuer"


def test_a_hold_is_allowed_for_rims_alone() -> None:
    """Leave for the one must never reach the other."""
    on_hold = replace(_L3, **_HOLD)  # type: ignore[arg-type]

    assert _judge_l3(_rim_chain(), on_hold, allow_rim_hold=True) == "certificate_hold"
    late = replace(on_hold, next_update=AT)
    for allowed in (True, False):
        with pytest.raises(AttestationError) as caught:
            _judge_l3(_rim_chain(), late, allow_rim_hold=allowed, grace=timedelta(hours=1))
        assert caught.value.code == ("crl_expired" if allowed else "certificate_revoked")
    for family_chain, allow in (
        (_rim_chain(), False),
        (_device_chain(), False),
        (_device_chain(), True),
    ):
        with pytest.raises(AttestationError) as caught:
            _judge_l3(family_chain, on_hold, allow_rim_hold=allow)
        assert caught.value.code == "certificate_revoked"


@pytest.mark.parametrize(
    "reason", [None, *(r for r in x509.ReasonFlags if r is not x509.ReasonFlags.certificate_hold)]
)
def test_no_other_reason_passes_as_a_hold(reason: x509.ReasonFlags | None) -> None:
    revoked = replace(_L3, status=ocsp.OCSPCertStatus.REVOKED, reason=reason)

    with pytest.raises(AttestationError) as caught:
        _judge_l3(_rim_chain(), revoked, allow_rim_hold=True)

    assert caught.value.code == "certificate_revoked"

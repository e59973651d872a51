"""A cache changes how long a verdict takes and nothing else, over all cases and over time."""

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given, settings
from hypothesis import strategies as st

from attestation.anchors import TrustAnchors, load_anchors
from attestation.cache import VerifiedCache
from attestation.checks import CheckLog
from attestation.errors import AttestationError, UntrustedEndorsement
from attestation.fake import FakeTee
from attestation.fake.pki import ROOT_NAME, TCB_SIGNER_NAME, FakePki, pem
from attestation.model import Check
from attestation.tdx.cases import _anchors, _collateral
from attestation.tdx.endorsements import TdxCollateral
from attestation.tdx.verifier import TdxClaims, TdxVerifier
from tests.attestation.cases import CASES
from tests.attestation.samples import AT
from tests.support.resources import vectors_dir

_DAY, _SECOND = timedelta(days=1), timedelta(seconds=1)
_TEE = FakeTee()
_ROOT_ONLY = TrustAnchors(anchors=tuple(a for a in load_anchors().anchors if a.kind == "fake"))
_NO_ROOT = TrustAnchors(anchors=())
_RENAMED_ROOT = TrustAnchors(
    anchors=tuple(replace(anchor, kind="foreign", name="mine") for anchor in _ROOT_ONLY.anchors)
)
_Outcome = tuple[TdxClaims | str, tuple[Check, ...]]


@dataclass(frozen=True, kw_only=True)
class _Input:
    quote: bytes
    collateral: TdxCollateral | None
    anchors: TrustAnchors = _ROOT_ONLY
    at: datetime = AT

    def judge(self, cache: VerifiedCache | None) -> _Outcome:
        """Claims or the code, and every check on the way."""
        log = CheckLog()
        verifier = TdxVerifier(anchors=self.anchors, cache=cache)
        try:
            claims = verifier.verify(self.quote, self.collateral, at=self.at, log=log)
        except AttestationError as err:
            return err.code, tuple(log.checks)
        return claims, tuple(log.checks)


def _require_same(inputs: Sequence[_Input]) -> None:
    """Each twice in a row too: the second is served by what the first left."""
    cache = VerifiedCache()
    for given_input in inputs:
        cold = given_input.judge(None)
        assert given_input.judge(cache) == cold
        assert given_input.judge(cache) == cold


def _published() -> list[_Input]:
    inputs = []
    for name in ("tdx", "tdx-synthetic"):
        folder: Path = vectors_dir() / "attestation" / name
        for file in sorted(folder.glob("*.json")):
            for case in json.loads(file.read_bytes())["cases"]:
                try:
                    collateral = _collateral(folder, case["inputs"])
                except AttestationError:
                    continue
                inputs.append(
                    _Input(
                        quote=(folder / case["inputs"]["quote"]).read_bytes(),
                        collateral=collateral,
                        anchors=_anchors(folder, case["inputs"].get("root", "intel")),
                        at=datetime.fromisoformat(case["verify_at"]),
                    )
                )
    return inputs


def _over_time(inputs: Sequence[_Input]) -> list[_Input]:
    """Around the end of whatever ends first, and years to either side."""
    moments = []
    for given_input in inputs:
        claims, _ = given_input.judge(None)
        ends = [given_input.at]
        if isinstance(claims, TdxClaims):
            ends += [claims.not_after, claims.collateral_issued]
        for end in ends:
            for step in (-900 * _DAY, -_SECOND, 0 * _DAY, _SECOND, 900 * _DAY, 9000 * _DAY):
                moments.append(replace(given_input, at=end + step))
    return moments


@pytest.mark.parametrize("seed", [1, 2])
def test_published_cases_in_any_order(seed: int) -> None:
    inputs = _published()
    random.Random(seed).shuffle(inputs)

    _require_same(inputs)
    assert len(inputs) == 125


def test_published_cases_over_time() -> None:
    inputs = _over_time(_published())
    random.Random(3).shuffle(inputs)

    _require_same(inputs)


@cache
def _own() -> tuple[_Input, ...]:
    bundles = [case.make() for case in CASES]
    return tuple(
        _Input(
            quote=bundle.quote,
            collateral=bundle.collateral
            if isinstance(bundle.collateral, TdxCollateral | None)
            else None,
        )
        for bundle in bundles
    )


@settings(deadline=None, max_examples=60)
@given(
    steps=st.lists(
        st.tuples(
            st.integers(min_value=0, max_value=len(CASES) - 1),
            st.sampled_from((_ROOT_ONLY, _NO_ROOT, _RENAMED_ROOT, load_anchors())),
            st.datetimes(
                min_value=datetime(2023, 1, 1),  # noqa: DTZ001 - hypothesis adds the zone
                max_value=datetime(2051, 1, 1),  # noqa: DTZ001
                timezones=st.just(UTC),
            )
            | st.integers(min_value=-40, max_value=40).map(lambda days: AT + days * _DAY),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_any_history_leaves_the_verdict_as_it_is(
    steps: list[tuple[int, TrustAnchors, datetime]],
) -> None:
    _require_same([replace(_own()[i], anchors=anchors, at=at) for i, anchors, at in steps])


def _good() -> _Input:
    quote, collateral = _TEE.attest(bytes(64), at=AT)
    return _Input(quote=quote, collateral=collateral)


def _warm() -> VerifiedCache:
    cache = VerifiedCache()
    claims, _ = _good().judge(cache)
    assert isinstance(claims, TdxClaims)
    return cache


def test_what_was_cached_does_not_outlive_its_dates() -> None:
    claims, _ = _good().judge(None)
    assert isinstance(claims, TdxClaims)
    cache = _warm()

    assert replace(_good(), at=claims.not_after).judge(cache)[0] == "collateral_expired"
    assert replace(_good(), at=AT + 9000 * _DAY).judge(cache)[0] == "certificate_time"
    assert replace(_good(), at=AT - 40 * _DAY).judge(cache)[0] == "collateral_not_yet_valid"


def test_a_cached_chain_is_looked_up_in_the_crl_of_the_day() -> None:
    good, issued = _good(), AT - _DAY
    assert good.collateral is not None
    pck_crl = _TEE.pki.pck_crl(issued, AT + _DAY, [_TEE.pck])
    signer_crl = _TEE.pki.root_crl(issued, AT + _DAY, [_TEE.pki.tcb_signer])
    ca_crl = _TEE.pki.root_crl(issued, AT + _DAY, [_TEE.pki.pck_ca])
    cache = _warm()

    for collateral in (
        replace(good.collateral, pck_crl=pck_crl),
        replace(good.collateral, root_ca_crl=signer_crl),
        replace(good.collateral, root_ca_crl=ca_crl),
    ):
        assert replace(good, collateral=collateral).judge(cache)[0] == "certificate_revoked"
    assert good.judge(cache) == good.judge(None)


def test_a_cached_chain_does_not_move_to_another_anchor_set() -> None:
    cache = _warm()

    assert replace(_good(), anchors=_NO_ROOT).judge(cache)[0] == "untrusted_root"
    claims, _ = replace(_good(), anchors=_RENAMED_ROOT).judge(cache)
    assert isinstance(claims, TdxClaims)
    assert (claims.anchor.kind, claims.anchor.name) == ("foreign", "mine")


def test_signatures_of_quote_and_quoting_enclave_are_never_cached() -> None:
    good, cache = _good(), _warm()

    def flipped(offset: int) -> _Input:
        changed = bytearray(good.quote)
        changed[offset] ^= 1
        return replace(good, quote=bytes(changed))

    assert flipped(48 + 520).judge(cache)[0] == "quote_signature"
    assert flipped(636).judge(cache)[0] == "quote_signature"
    assert flipped(770).judge(cache)[0] == "qe_report_signature"
    assert flipped(1154).judge(cache)[0] == "qe_report_signature"
    assert flipped(700).judge(cache)[0] == "qe_binding"


def test_a_failure_is_not_kept() -> None:
    cache, calls = VerifiedCache(), []

    def fail() -> str:
        calls.append("call")
        raise UntrustedEndorsement("crl_missing", "not given")

    for _ in range(2):
        with pytest.raises(UntrustedEndorsement):
            cache.recall(("kind", b"bytes"), fail)
    assert len(calls) == 2
    assert len(cache) == 0


def test_the_cache_is_bounded_and_drops_what_was_used_least_recently() -> None:
    cache = VerifiedCache(max_entries=3, max_bytes=100)
    for name in (b"a", b"b", b"c"):
        cache.recall((name,), lambda: 1)
    cache.recall((b"a",), lambda: 2)
    cache.recall((b"d",), lambda: 1)

    assert len(cache) == 3
    assert cache.recall((b"a",), lambda: 2) == 1
    assert cache.recall((b"b",), lambda: 2) == 2
    cache.recall((bytes(99),), lambda: 1)
    assert cache.num_bytes <= 100
    cache.recall((bytes(101),), lambda: 1)
    assert (len(cache), cache.num_bytes) == (0, 0)


def test_a_signature_is_known_only_with_its_signer() -> None:
    good, cache = _good(), _warm()
    assert good.collateral is not None
    other_pki = FakePki(seed=b"mine")
    issued = x509.CertificateBuilder(
        subject_name=_TEE.pki.tcb_signer.subject,
        issuer_name=_TEE.pki.root.subject,
        public_key=other_pki.key(TCB_SIGNER_NAME).public_key(),
        serial_number=7,
        not_valid_before=AT - _DAY,
        not_valid_after=AT + _DAY,
    ).sign(_TEE.pki.key(ROOT_NAME), hashes.SHA256())
    chain = pem((issued, _TEE.pki.root)).decode()

    qe = replace(good, collateral=replace(good.collateral, qe_identity_issuer_chain=chain))
    info = replace(good, collateral=replace(good.collateral, tcb_info_issuer_chain=chain))

    assert qe.judge(cache)[0] == "qe_identity_signature"
    assert info.judge(cache)[0] == "tcb_info_signature"


def test_a_signing_chain_is_known_only_under_its_root() -> None:
    cache, mine = _warm(), FakeTee(pki=FakePki(seed=b"mine"))
    quote, collateral = mine.attest(bytes(64), at=AT)
    good = _good().collateral
    assert good is not None
    mixed = replace(collateral, tcb_info_issuer_chain=good.tcb_info_issuer_chain)
    both = _ROOT_ONLY.with_foreign(mine.pki.root.public_bytes(Encoding.DER), source="test")

    given_input = _Input(quote=quote, collateral=mixed, anchors=both)

    assert given_input.judge(None)[0] == "untrusted_root"
    assert given_input.judge(cache)[0] == "untrusted_root"

"""A session counts only when every part of it answers one nonce and names one set of keys."""

from dataclasses import replace
from typing import Any

import pytest

from attestation.composite import SessionEndorsements
from attestation.fake import FakeTee
from attestation.policy import load_policy
from attestation.profiles import PROFILES
from tests.attestation import samples, sessions
from tests.attestation.samples import AT, NONCE, failures
from tests.attestation.sessions import FACTS, Peer, judge_session, relaxed


@pytest.mark.parametrize("profile", PROFILES)
def test_an_honest_peer_is_accepted_under_its_own_profile(profile: str) -> None:
    result = judge_session(Peer(profile).session())

    assert failures(result) == []
    assert result.is_accepted
    assert result.claims["binding_profile"] == profile
    assert set(PROFILES[profile].not_covered) <= set(result.not_covered)


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("other", PROFILES)
def test_no_profile_passes_for_another(profile: str, other: str) -> None:
    if profile != other:
        result = judge_session(replace(Peer(profile).session(), profile=other))

        assert failures(result) == ["channel_binding"]


@pytest.mark.parametrize(
    ("profile", "changes"),
    [
        ("tinfoil-v2", {"hpke_key": b"\7" * 32}),
        ("tinfoil-v3", {"hpke_key": b"\7" * 32}),
        ("dstack", {"content": b"other"}),
        ("dstack", {"tag": "ratls-cert"}),
        ("near", {"signing_address": b"\7" * 20}),
        ("venice", {"signing_address": b"\7" * 20}),
        ("chutes", {"content": b"other"}),
    ],
)
def test_a_stated_key_that_the_quote_does_not_vouch_for_fails(
    profile: str, changes: dict[str, Any]
) -> None:
    session = Peer(profile).session(stated=replace(FACTS, **changes))

    assert failures(judge_session(session)) == ["channel_binding"]


@pytest.mark.parametrize("profile", PROFILES)
def test_the_tls_key_of_our_own_connection_counts(profile: str) -> None:
    """Also where the convention does not bind it: what is stated must be what we see."""
    result = judge_session(Peer(profile).session(), tls_key_sha256=b"\7" * 32)

    assert failures(result) == ["channel_binding"]


def test_without_our_own_tls_key_the_verdict_says_so() -> None:
    result = judge_session(Peer("near").session(), tls_key_sha256=None)

    assert result.is_accepted
    assert any(gap.startswith("channel: the TLS key") for gap in result.not_covered)


@pytest.mark.parametrize("label", ["tdx", "sgx"])
def test_the_evidence_is_what_its_label_says(label: str) -> None:
    """The fake root signs for no vendor's TEE, and a TDX quote is no enclave's."""
    result = judge_session(Peer("near").session(label=label))

    assert failures(result) == ["tee_type"]


@pytest.mark.parametrize("profile", PROFILES)
def test_another_nonce_fails(profile: str) -> None:
    result = judge_session(Peer(profile).session(), nonce=samples.OTHER_NONCE)

    assert failures(result) == ["nonce_mismatch"]


def test_a_nonce_that_is_only_restated_fails_at_report_data() -> None:
    """The peer recorded an old quote and says that it answers ours."""
    old = Peer("near", replace(FACTS, nonce=samples.OTHER_NONCE)).session(stated=FACTS)

    assert failures(judge_session(old)) == ["channel_binding"]


@pytest.mark.parametrize(
    ("profile", "missing"),
    [
        ("tinfoil-v3", "hpke_key"),
        ("near", "signing_address"),
        ("venice", "signing_address"),
        ("dstack", "content"),
        ("chutes", "content"),
    ],
)
def test_a_fact_that_is_missing_is_no_pass(profile: str, missing: str) -> None:
    session = Peer(profile).session(stated=replace(FACTS, **{missing: None}))

    assert failures(judge_session(session)) == ["format"]


def test_production_takes_no_profile_of_others() -> None:
    result = judge_session(Peer("near").session(), policy=load_policy("production"))

    assert failures(result) == ["evidence_refused"]


def test_an_unknown_profile_is_unsupported() -> None:
    session = replace(Peer("near").session(), profile="mine")

    assert failures(judge_session(session)) == ["unsupported_tee"]


@pytest.mark.parametrize("kind", ["gpu", "nras"])
def test_what_the_policy_requires_may_not_be_absent(kind: str) -> None:
    result = judge_session(Peer("near").session(), policy=relaxed(**{kind: "required"}))

    assert failures(result) == ["evidence_missing"]


def test_gpus_and_token_answer_the_profiles_nonce() -> None:
    gpu = (sessions.gpu_entry(nonce=NONCE),)
    session = Peer("near").session(gpu=gpu, nras=sessions.token(NONCE))
    result = judge_session(session)
    other_gpu = judge_session(replace(session, gpu=(sessions.gpu_entry(),)))
    other_token = judge_session(replace(session, nras=sessions.token()))

    assert failures(result) == []
    assert list(result.submods) == ["cpu", "gpu-0", "nras"]
    assert failures(other_gpu) == ["nonce_mismatch"]
    assert failures(other_token) == ["nonce_mismatch"]


def test_chutes_asks_its_gpus_with_a_derived_nonce() -> None:
    profile = PROFILES["chutes"]
    derived = profile.gpu_nonce(FACTS)
    session = Peer("chutes").session(gpu=(sessions.gpu_entry(nonce=derived),))
    raw = Peer("chutes").session(gpu=(sessions.gpu_entry(nonce=NONCE),))

    assert failures(judge_session(session)) == []
    assert failures(judge_session(raw)) == ["nonce_mismatch"]


def test_gpu_evidence_is_what_the_session_states() -> None:
    stated = replace(FACTS, gpu_sha256=b"\5" * 32)
    peer = Peer("tinfoil-v3", stated)
    gpu = (sessions.gpu_entry(nonce=NONCE),)

    assert failures(judge_session(peer.session(gpu=gpu, gpu_sha256=b"\5" * 32))) == []
    assert failures(judge_session(peer.session(gpu=gpu, gpu_sha256=b"\6" * 32))) == [
        "gpu_evidence_hash"
    ]
    assert failures(judge_session(peer.session(gpu=gpu, gpu_sha256=None))) == ["gpu_evidence_hash"]


def test_a_token_without_keys_to_check_it_is_no_pass() -> None:
    session = Peer("near").session(nras=sessions.token(NONCE))
    without = SessionEndorsements(cpu=FakeTee().collateral(AT))

    assert failures(judge_session(session, endorsements=without)) == ["endorsement_missing"]

"""How much of REPORT_DATA each convention binds, and what its verdicts leave open."""

from dataclasses import replace

import pytest

from attestation.errors import AttestationError
from attestation.profiles import PROFILES, SessionFacts
from tests.attestation.samples import failures, flip_bit
from tests.attestation.sessions import Peer, judge_session

_BOUND_BYTES = dict.fromkeys(PROFILES, 64) | {"chutes": 32}
_NO_NONCE = "freshness: this binding has no nonce, so the session may be a recording"
_HALF = "report_data: its second half is the peer's own and is not compared"
_NOT_COVERED = {"tinfoil-v2": (_NO_NONCE,), "dstack": (_NO_NONCE,), "chutes": (_HALF,)}


@pytest.mark.parametrize("name", PROFILES)
def test_every_bound_byte_is_compared(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A genuine quote whose REPORT_DATA differs in one bit of one byte."""
    profile, session = PROFILES[name], Peer(name).session()
    bound = _BOUND_BYTES[name]
    assert profile.num_bound_bytes == bound
    for byte in (0, 31, bound - 1):

        def other(facts: SessionFacts, byte: int = byte) -> bytes:
            return flip_bit(profile.report_data(facts), 8 * byte)

        with monkeypatch.context() as patch:
            patch.setattr(
                "attestation.composite.binding_profile",
                lambda _, other=other: replace(profile, report_data=other),
            )
            assert failures(judge_session(session)) == ["channel_binding"]


@pytest.mark.parametrize("name", PROFILES)
def test_what_a_convention_leaves_open_is_told(name: str) -> None:
    assert PROFILES[name].not_covered == _NOT_COVERED.get(name, ())


def test_a_fact_that_is_missing_or_short_is_named() -> None:
    near = PROFILES["near"].report_data
    facts = SessionFacts(nonce=b"n" * 32, tls_key_sha256=b"t" * 31, signing_address=b"a" * 20)

    with pytest.raises(AttestationError, match="TLS key is 31 bytes, want 32 bytes"):
        near(facts)
    with pytest.raises(AttestationError, match="TLS key is none, want 32 bytes"):
        near(replace(facts, tls_key_sha256=None))
    with pytest.raises(AttestationError, match="signing address is none, want 20 bytes"):
        near(replace(facts, signing_address=None))

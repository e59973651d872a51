"""Is each forgery good work, and is it found out all the same, by its own check?"""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from attestation.anchors import load_anchors
from attestation.appraise import appraise
from attestation.channel import ServerKey, parse_key_configs, serialize_key_configs
from attestation.evidence import make_bundle
from attestation.fake import FakeTee
from attestation.keyset import build_keyset
from attestation.model import Nonce, parse_bundle
from attestation.policy import load_policy
from gateway.demo.attacks import ATTACKS, Attack, flip_quote_bit, revoke_tcb, swap_keys

NOW = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
NONCE = Nonce(bytes(range(32)))
ON_EVIDENCE = [attack for attack in ATTACKS if attack.path == "/attestation"]


@pytest.fixture(scope="module")
def bundle() -> bytes:
    keyset = build_keyset(
        not_after=NOW.replace(hour=13),
        replica="worker-0",
        mode="terminate",
        ohttp=(),
        policy_sha256="ab" * 32,
    )
    return make_bundle(FakeTee(), NONCE, keyset, NOW).to_json()


def verdict_code(bundle: bytes) -> str | None:
    result = appraise(
        parse_bundle(bundle),
        nonce=NONCE,
        policy=load_policy("development"),
        anchors=load_anchors(),
        at=NOW,
    )
    return result.code


def test_what_nobody_touched_is_accepted(bundle: bytes) -> None:
    assert verdict_code(bundle) is None


@pytest.mark.parametrize("attack", ON_EVIDENCE, ids=lambda attack: attack.code)
def test_each_forgery_is_read_and_refused_with_its_own_code(bundle: bytes, attack: Attack) -> None:
    assert verdict_code(attack.alter(bundle, NOW)) == attack.code


def test_one_bit_is_one_bit(bundle: bytes) -> None:
    before, after = parse_bundle(bundle), parse_bundle(flip_quote_bit(bundle, NOW))
    changed = [a ^ b for a, b in zip(before.quote, after.quote, strict=True) if a != b]
    assert changed == [1]
    assert replace(after, quote=before.quote) == before


def test_only_the_collateral_tells_of_the_revoked_tcb(bundle: bytes) -> None:
    before, after = parse_bundle(bundle), parse_bundle(revoke_tcb(bundle, NOW))
    assert after.quote == before.quote
    assert json.loads(after.collateral.tcb_info)["tcbLevels"][0]["tcbStatus"] == "Revoked"  # type: ignore[union-attr]


def test_swapped_keys_have_the_same_ids_and_suites() -> None:
    keys = serialize_key_configs([ServerKey.generate(key_id=n).config for n in (1, 7)])
    before, after = parse_key_configs(keys), parse_key_configs(swap_keys(keys, NOW))
    assert [c.key_id for c in after] == [1, 7]
    assert [c.symmetric for c in after] == [c.symmetric for c in before]
    assert not {c.sha256 for c in before} & {c.sha256 for c in after}

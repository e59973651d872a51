"""Does the demo notice when a scene is not as it must be?"""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from gateway.demo.attacks import ATTACKS
from gateway.demo.cli import _show
from gateway.demo.scenes import SCENES, Played, Seen, _wrong
from gateway.demo.stage import Badge
from gateway.startup_display import Display

ATTACK = ATTACKS[0]
ANSWERED = Seen(
    status=200,
    text="It blocks starlight.",
    code=None,
    receipt_id="ab" * 16,
    receipt_outcome="complete",
    receipt_code=None,
    badge=Badge(tier="warning", code=None, is_simulated=True, appraised_s=1.0),
    num_forwarded=1,
    num_forwarded_bytes=500,
    is_prompt_readable=False,
)
REFUSED = Seen(
    status=503,
    text="No worker passed attestation: quote_signature.",
    code="upstream_verification_failed",
    receipt_id="ab" * 16,
    receipt_outcome="refused",
    receipt_code=None,
    badge=Badge(tier="contraindicated", code=ATTACK.code, is_simulated=True, appraised_s=1.0),
    num_forwarded=0,
    num_forwarded_bytes=0,
    is_prompt_readable=False,
)


def test_all_as_it_must_be() -> None:
    assert _wrong(None, ANSWERED) == []
    assert _wrong(ATTACK, REFUSED) == []


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (replace(ANSWERED, status=503), "the request is answered"),
        (replace(ANSWERED, receipt_outcome="failed"), "the receipt says complete"),
        (replace(ANSWERED, receipt_code="receipt_signature"), "the receipt is signed and true"),
        (replace(ANSWERED, badge=None), "the badge accepts the worker"),
        (replace(ANSWERED, badge=REFUSED.badge), "the badge accepts the worker"),
        (replace(ANSWERED, num_forwarded=0), "one sealed request was forwarded"),
        (replace(ANSWERED, is_prompt_readable=True), "the prompt is nowhere readable"),
    ],
)
def test_what_is_missing_from_an_answer_is_named(seen: Seen, words: str) -> None:
    assert _wrong(None, seen) == [words]


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (replace(REFUSED, status=200), "the request is refused"),
        (replace(REFUSED, code="overloaded"), "the request is refused"),
        (replace(REFUSED, text="No."), "the refusal names quote_signature"),
        (replace(REFUSED, receipt_outcome="complete"), "the receipt says refused"),
        (replace(REFUSED, receipt_code="receipt_not_found"), "the receipt is signed and true"),
        (replace(REFUSED, badge=ANSWERED.badge), "the badge is red with quote_signature"),
        (replace(REFUSED, badge=None), "the badge is red with quote_signature"),
        (replace(REFUSED, num_forwarded=1), "nothing was forwarded"),
    ],
)
def test_what_is_missing_from_a_refusal_is_named(seen: Seen, words: str) -> None:
    assert _wrong(ATTACK, seen) == [words]


def test_every_attack_has_its_scene_between_two_quiet_ones() -> None:
    assert [scene.attack for scene in SCENES] == [None, *ATTACKS, None]


def test_a_badge_says_its_tier_then_its_code() -> None:
    assert ANSWERED.badge is not None
    assert REFUSED.badge is not None
    assert ANSWERED.badge.words == "warning, SIMULATED"
    assert REFUSED.badge.words == "contraindicated: quote_signature"


@pytest.mark.parametrize(("is_readable", "words"), [(False, "not readable"), (True, "READABLE")])
def test_what_is_said_of_the_wire_is_what_was_seen(is_readable: bool, words: str) -> None:
    seen = replace(ANSWERED, is_prompt_readable=is_readable)
    shown = io.StringIO()
    _show(Display(Console(file=shown)), 1, Played(scene=SCENES[0], seen=seen, wrong=()))
    assert f"1 sealed request, 500 bytes, the prompt {words} in it" in shown.getvalue()

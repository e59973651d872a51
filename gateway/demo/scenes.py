"""What must be seen in each scene, and is it?

One request, always the same; its receipt, signed by a key that the gateway's Evidence attests; the
dashboard's badge; and what went over the wire to the worker.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import httpx

from attestation.errors import AttestationError
from attestation.receipt import SignedReceipt
from attestation.receipt_checks import check_receipt, failing_code
from gateway.demo.attacks import ATTACKS, Attack
from gateway.demo.stage import Badge, Stage
from gateway.models import served_name
from gateway.receipts import HEADER

PROMPT: Final = "In one sentence: what does a starshade do?"
MAX_TOKENS: Final = 32
REFUSED_STATUS: Final = 503
REFUSED_CODE: Final = "upstream_verification_failed"
_ACCEPTED_TIERS: Final = ("affirming", "warning")
_RECEIPT_HEADER: Final = HEADER.decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What came of one request. ``receipt_code`` is None when the receipt holds."""

    status: int
    text: str
    code: str | None
    receipt_id: str
    receipt_outcome: str | None
    receipt_code: str | None
    badge: Badge | None
    num_forwarded: int
    num_forwarded_bytes: int
    is_prompt_readable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """``attack`` None: nobody interferes."""

    title: str
    attack: Attack | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """``wrong`` lists what was not as it must be."""

    scene: Scene
    seen: Seen
    wrong: tuple[str, ...]


SCENES: Final = (
    Scene(title="nobody interferes", attack=None),
    *(Scene(title=attack.name, attack=attack) for attack in ATTACKS),
    Scene(title="the attacker is gone", attack=None),
)


def play(scene: Scene, stage: Stage, *, unix_s: Callable[[], float]) -> Played:
    """Verify, ask, look."""
    since_s = unix_s()
    stage.verify_anew(scene.attack)
    num_before = len(stage.wire.forwarded)  # the gateway asks a verified worker for its models
    body = _body(stage)
    response = stage.client.post(
        f"{stage.url}/chat/completions",
        content=body,
        headers={
            "authorization": f"Bearer {stage.key}",
            "content-type": "application/json",
        },
    )
    forwarded = stage.wire.forwarded[num_before:]
    receipt_id = response.headers.get(_RECEIPT_HEADER, "")
    outcome, receipt_code = _receipt(stage, receipt_id, body, response.content)
    text, code = _read(response)
    seen = Seen(
        status=response.status_code,
        text=text,
        code=code,
        receipt_id=receipt_id,
        receipt_outcome=outcome,
        receipt_code=receipt_code,
        badge=stage.badge(since_s=since_s),
        num_forwarded=len(forwarded),
        num_forwarded_bytes=sum(map(len, forwarded)),
        is_prompt_readable=any(PROMPT.encode() in sealed for sealed in forwarded),
    )
    return Played(scene=scene, seen=seen, wrong=tuple(_wrong(scene.attack, seen)))


def _wrong(attack: Attack | None, seen: Seen) -> list[str]:
    must = _answered(seen) if attack is None else _refused(seen, attack.code)
    must["the receipt is signed and true"] = seen.receipt_code is None
    must["the prompt is nowhere readable"] = not seen.is_prompt_readable
    return [words for words, is_so in must.items() if not is_so]


def _answered(seen: Seen) -> dict[str, bool]:
    return {
        "the request is answered": seen.status == 200,
        "the receipt says complete": seen.receipt_outcome == "complete",
        "the badge accepts the worker": seen.badge is not None
        and seen.badge.tier in _ACCEPTED_TIERS,
        "one sealed request was forwarded": seen.num_forwarded == 1,
    }


def _refused(seen: Seen, code: str) -> dict[str, bool]:
    badge = seen.badge
    return {
        "the request is refused": (seen.status, seen.code) == (REFUSED_STATUS, REFUSED_CODE),
        f"the refusal names {code}": code in seen.text,
        "the receipt says refused": seen.receipt_outcome == "refused",
        f"the badge is red with {code}": badge is not None
        and (badge.tier, badge.code) == ("contraindicated", code),
        "nothing was forwarded": seen.num_forwarded == 0,
    }


def _body(stage: Stage) -> bytes:
    body = {
        "model": served_name(stage.config.worker.model),
        "messages": [{"role": "user", "content": PROMPT}],
        "max_tokens": MAX_TOKENS,
        "temperature": 0,
    }
    return json.dumps(body).encode()


def _read(response: httpx.Response) -> tuple[str, str | None]:
    """The answer's text, or the error's message and code."""
    try:
        value: dict[str, Any] = response.json()
        if response.status_code == 200:
            return str(value["choices"][0]["message"]["content"]), None
        return str(value["error"]["message"]), str(value["error"]["code"])
    except (ValueError, KeyError, IndexError, TypeError):
        return "", None


def _receipt(
    stage: Stage, receipt_id: str, request: bytes, response: bytes
) -> tuple[str | None, str | None]:
    """(outcome, why it does not hold): the keys that count are those of the attested keyset."""
    answer = stage.client.get(
        f"{stage.url}/receipts/{receipt_id}", headers={"authorization": f"Bearer {stage.key}"}
    )
    if answer.status_code != 200:
        return None, "receipt_not_found"
    try:
        signed = SignedReceipt.parse(answer.content)
    except AttestationError as err:
        return None, err.code
    keys = stage.keeper.require().receipt_keys
    checks = check_receipt(signed, keys, request=request, response=response)
    return signed.receipt.outcome, failing_code(checks)

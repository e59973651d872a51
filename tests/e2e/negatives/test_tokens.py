"""Tokens of NVIDIA's service that must not be believed: attack 14 of docs/threat-model.md.

The gateway has the service's keys, and the worker hands over a token about a GPU; all is genuine
but for what the case changes.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from attestation.model import EvidenceBundle
from attestation.snp.endorsements import SnpEndorsements
from attestation.tdx.endorsements import TdxCollateral
from gateway.collateral import Completed
from tests.attestation import sessions
from tests.attestation.nras.samples import KID, Answer, good_answer, to_json
from tests.attestation.samples import AT
from tests.e2e.negatives.scene import Scene
from tests.e2e.negatives.test_evidence import (
    all_anchors,
    assert_quarantined,
    offer,
    prepared_scene,
)

LATER_S = int(AT.timestamp()) + 3600
EARLIER_S = int(AT.timestamp()) - 3600


class GivenKeys:
    """In the place of what would ask NVIDIA for them."""

    async def complete(
        self, evidence: EvidenceBundle, _bundle: bytes, *, at: datetime, end_ns: int
    ) -> Completed:
        cpu = evidence.collateral
        assert cpu is None or isinstance(cpu, TdxCollateral | SnpEndorsements)
        return Completed(cpu=cpu, gpu=evidence.gpu_endorsements, jwks=sessions.jwks())


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[Scene]:
    with prepared_scene(
        tmp_path_factory.mktemp("tokens"),
        tiny_model,
        anchors=all_anchors(),
        policy=sessions.relaxed(),
        completer=GivenKeys(),
    ) as made:
        yield made


def with_token(change: Callable[[Answer], object]) -> EvidenceBundle:
    answer = good_answer()
    answer.devices["GPU-0"].claims["ueid"] = str(0x2000)
    for each in (answer.overall, *answer.devices.values()):
        each.claims["eat_nonce"] = sessions.DEVICE_NONCE.hex()
    change(answer)
    return sessions.bundle(nras=to_json(answer.bundle()))


def header(**changes: Any) -> Callable[[Answer], object]:
    return lambda answer: answer.overall.header.update(changes)


def claim(**changes: Any) -> Callable[[Answer], object]:
    return lambda answer: answer.overall.claims.update(changes)


def signed_with_the_public_key(answer: Answer) -> None:
    """HMAC, keyed by what everybody may know [RFC 8725 sec. 2.1]."""

    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    answer.bundle()  # fills the digests of the device tokens in
    key = json.dumps(answer.jwks["keys"][0]).encode()
    head = part(json.dumps({"alg": "HS256", "kid": KID}).encode())
    signed = f"{head}.{part(to_json(answer.overall.claims))}"
    tag = hmac.new(key, signed.encode(), hashlib.sha256).digest()
    answer.texts["overall"] = f"{signed}.{part(tag)}"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (header(alg="none"), "algorithm"),
        (signed_with_the_public_key, "algorithm"),
        (claim(iss="https://nras.attestation.example"), "claims"),
        (claim(exp=EARLIER_S), "token_expired"),
        (claim(nbf=LATER_S), "token_not_yet_valid"),
        (header(kid="../../../../etc/passwd"), "unknown_kid"),
        (header(jku="https://evil.example/jwks.json"), "format"),
        (claim(eat_nonce="00" * 32), "nonce_mismatch"),
        (lambda answer: setattr(answer.overall, "signer", "somebody"), "token_signature"),
        (lambda answer: None, "key_config_error"),
    ],
    ids=[
        *("none", "hmac", "issuer", "expired", "early", "kid-path", "jku", "nonce", "signer"),
        "control",
    ],
)
def test_a_token_with_one_fault(
    served: Scene, change: Callable[[Answer], object], code: str
) -> None:
    """The control ends at its key: the worker has not the one that the session names."""
    offer(served, with_token(change).to_json())
    assert_quarantined(served, code)

"""What can somebody on the wire between gateway and worker change?  Three things worth trying.

Each takes the worker's true answer and gives the forged one. What they forge is good work: the
bundle stays well formed, the key is a real one, the collateral is signed as it has to be.
"""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from attestation.channel import ServerKey, parse_key_configs, serialize_key_configs
from attestation.fake import FakeTee
from attestation.fake.platform import FakePlatform
from attestation.model import parse_bundle

ATTESTATION_PATH: Final = "/attestation"
KEYS_PATH: Final = "/keys"
_FLIPPED_BYTE: Final = 64  # inside the TD report, which the quote's signature covers
_REVOKED: Final = "Revoked"  # Intel's word for a TCB level  [Intel PCS API, TCB info]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """``alter`` changes what the worker answers at ``path``; ``code`` is what must come of it."""

    name: str
    path: str
    alter: Callable[[bytes, datetime], bytes]
    code: str


def flip_quote_bit(bundle: bytes, _at: datetime) -> bytes:
    """One bit of what the hardware signed: anything it says of the machine could be it."""
    value: dict[str, Any] = json.loads(bundle)
    quote = bytearray(base64.b64decode(value["quote_b64"]))
    quote[_FLIPPED_BYTE] ^= 1
    return json.dumps({**value, "quote_b64": base64.b64encode(quote).decode()}).encode()


def swap_keys(keys: bytes, _at: datetime) -> bytes:
    """The attacker's own keys under the worker's ids: what is sealed to them he could read."""
    own = [
        replace(
            ServerKey.generate(key_id=config.key_id, kem_id=config.kem_id).config,
            symmetric=config.symmetric,
        )
        for config in parse_key_configs(keys)
    ]
    return serialize_key_configs(own)


def revoke_tcb(bundle: bytes, at: datetime) -> bytes:
    """The vendor has revoked the machine's firmware level, as it does after a break.

    Not forged but signed, by the key of the simulated vendor: everybody can compute that one.
    """
    tee = FakeTee(platform=FakePlatform(tcb_status=_REVOKED))
    return replace(parse_bundle(bundle), collateral=tee.collateral(at)).to_json()


ATTACKS: Final = (
    Attack(
        name="one bit of the quote is flipped",
        path=ATTESTATION_PATH,
        alter=flip_quote_bit,
        code="quote_signature",
    ),
    Attack(
        name="the HPKE key is swapped",
        path=KEYS_PATH,
        alter=swap_keys,
        code="key_config_error",
    ),
    Attack(
        name="the TCB is revoked",
        path=ATTESTATION_PATH,
        alter=revoke_tcb,
        code="tcb_status",
    ),
)

"""What may a client rely on after a verdict, with which keys, and until when?"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from attestation.binding import keyset_digest
from attestation.channel import (
    KEM_XWING,
    ChannelError,
    KeyConfig,
    lease_not_after,
    parse_key_configs,
    select_key_config,
)
from attestation.errors import AttestationError
from attestation.keyset import Keyset, Mode, parse_keyset
from attestation.model import AttestationResult
from attestation.strict_json import JsonObject
from attestation.transport.errors import EvidenceRefused

REFRESH_RATIO: Final = 0.8  # of a session's term


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """An accepted verdict and the keys that it vouches for; made by ``open_session`` alone."""

    result: AttestationResult
    keyset: Keyset
    keyset_sha256: str
    key_config: KeyConfig = field(repr=False)
    not_before: datetime
    not_after: datetime

    def is_current(self, now: datetime) -> bool:
        """Whether it may be sealed to now; a clock that was put back ends it as well."""
        return self.not_before <= now < self.not_after

    @property
    def refresh_due(self) -> datetime:
        """When the next one should be begun, so that nobody waits for it."""
        term: timedelta = self.not_after - self.not_before
        return self.not_before + REFRESH_RATIO * term

    @property
    def tls_pins(self) -> frozenset[bytes]:
        """SHA-256 of each SubjectPublicKeyInfo that the gateway's TLS may show."""
        return frozenset(bytes.fromhex(key.spki_sha256) for key in self.keyset.tls)


def open_session(
    result: AttestationResult,
    keyset: JsonObject,
    keys: bytes,
    *,
    at: datetime,
    mode: Mode | None = None,
) -> Session:
    """The session of an accepted verdict; ``keys`` is the list of keys that was offered.

    1. The verdict accepts. 2. The keyset is in the mode that the caller insists on. 3. One of the
    offered keys is in the attested keyset; one that quantum computers do not open goes first.

    Raises: EvidenceRefused.
    """
    if not result.is_accepted:  # 1
        reason = next((check.reason for check in result.checks if check.outcome == "fail"), "")
        code = result.code or "not_accepted"
        raise EvidenceRefused(code, f"the gateway's evidence is refused: {code}: {reason}", result)
    try:
        parsed = parse_keyset(keyset)
        if mode is not None and parsed.mode != mode:  # 2
            said = f"the gateway's mode is {parsed.mode}, and {mode} is insisted on"
            raise EvidenceRefused("session_not_accepted", said, result)
        attested = [key.config_sha256 for key in parsed.ohttp]
        offered = sorted(parse_key_configs(keys), key=lambda config: config.kem_id != KEM_XWING)
        key_config = select_key_config(offered, attested)  # 3
    except (AttestationError, ChannelError) as err:
        raise EvidenceRefused(err.code, f"the gateway's keys are refused: {err}", result) from err
    return Session(
        result=result,
        keyset=parsed,
        keyset_sha256=keyset_digest(keyset).hex(),
        key_config=key_config,
        not_before=at,
        not_after=lease_not_after(at, [result.not_after, parsed.not_after]),
    )

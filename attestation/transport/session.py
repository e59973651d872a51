"""What may a client rely on after a verdict, with which keys, and until when?"""

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from attestation.channel import (
    KEM_XWING,
    REFRESH_RATIO,
    ChannelError,
    KeyConfig,
    lease_not_after,
    parse_key_configs,
    select_key_config,
)
from attestation.errors import AttestationError
from attestation.keyset import Keyset, Mode, ReceiptKey, parse_keyset
from attestation.model import AttestationResult
from attestation.strict_json import JsonObject
from attestation.transport.errors import EvidenceRefused


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A verdict, and the keyset that it is on: believed only as far as the verdict accepts."""

    result: AttestationResult
    keyset: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Accepted verdicts and the keys that they vouch for; made by ``open_session`` alone.

    ``result`` and ``sealed_to`` are of whoever opens the requests: the gateway, or in pass-through
    mode a worker behind it. ``gateway`` is the gateway's own keyset, with its TLS keys.
    """

    result: AttestationResult
    gateway_result: AttestationResult
    gateway: Keyset
    sealed_to: Keyset
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
        return self.gateway.tls_pins

    @property
    def receipt_keys(self) -> tuple[ReceiptKey, ...]:
        """Who may have signed the receipt of a request of this session."""
        return self.sealed_to.receipt

    @property
    def is_blind(self) -> bool:
        """The gateway cannot open what passes through it, so it has to be told the API key."""
        return self.gateway.mode == "pass-through"


def open_session(
    gateway: Judged,
    keys: bytes,
    *,
    at: datetime,
    weights_sha256: Collection[str] = (),
    worker: Judged | None = None,
) -> Session:
    """The session of accepted verdicts; ``keys`` is the list of keys that was offered.

    1. Every verdict accepts. 2. The worker is in the gateway's mode, and there are weights, but
    none that the caller does not know, if he insists on some. 3. One of the offered keys is in the
    keyset of whoever is to open; one that quantum computers do not open goes first.

    Raises: EvidenceRefused.
    """
    opener = gateway if worker is None else worker
    own, sealed_to = _keyset(gateway), _keyset(opener)  # 1
    if sealed_to.mode != own.mode:  # 2
        raise _not_in(own.mode, sealed_to, opener)
    served = set(sealed_to.weights_sha256)
    if weights_sha256 and not (served and served <= set(weights_sha256)):
        said = f"{sealed_to.replica} serves other weights than those that are insisted on"
        raise EvidenceRefused("session_not_accepted", said, opener.result)
    try:
        offered = sorted(parse_key_configs(keys), key=lambda config: config.kem_id != KEM_XWING)
        attested = [key.config_sha256 for key in sealed_to.ohttp]
        key_config = select_key_config(offered, attested)  # 3
    except ChannelError as err:
        said = f"the gateway's keys are refused: {err}"
        raise EvidenceRefused(err.code, said, opener.result) from err
    ends = [opener.result.not_after, sealed_to.not_after, gateway.result.not_after, own.not_after]
    return Session(
        result=opener.result,
        gateway_result=gateway.result,
        gateway=own,
        sealed_to=sealed_to,
        key_config=key_config,
        not_before=at,
        not_after=lease_not_after(at, ends),
    )


def require_mode(gateway: Judged, insisted: Mode | None) -> Mode:
    """The gateway's.

    Raises: EvidenceRefused: its verdict does not accept, or it is in another than insisted on.
    """
    own = _keyset(gateway)
    if insisted is not None and own.mode != insisted:
        raise _not_in(insisted, own, gateway)
    return own.mode


def _keyset(judged: Judged) -> Keyset:
    result = judged.result
    if not result.is_accepted:
        reason = next((check.reason for check in result.checks if check.outcome == "fail"), "")
        code = result.code or "not_accepted"
        raise EvidenceRefused(code, f"the evidence is refused: {code}: {reason}", result)
    try:
        return parse_keyset(judged.keyset)
    except AttestationError as err:
        raise EvidenceRefused(err.code, f"the keyset is refused: {err}", result) from err


def _not_in(mode: Mode, keyset: Keyset, judged: Judged) -> EvidenceRefused:
    said = f"{keyset.replica} is in the mode {keyset.mode}, and {mode} is insisted on"
    return EvidenceRefused("session_not_accepted", said, judged.result)

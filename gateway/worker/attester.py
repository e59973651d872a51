"""Which Evidence does this process offer for a nonce?  The Attester role.  [RFC 9334 sec. 3]

Worker and gateway both attest: the worker its OHTTP key and weights, the gateway its TLS key.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from attestation import collect
from attestation.binding import keyset_digest
from attestation.evidence import QuotingTee, make_bundle
from attestation.fake import FakeTee
from attestation.keyset import Mode, OhttpKey, ReceiptKey, TlsKey, build_keyset
from attestation.model import Nonce
from attestation.strict_json import JsonObject
from gateway.problems import GatewayError

_log = logging.getLogger(__name__)

KEYSET_LIFETIME: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttestedFacts:
    """What the keyset says: the public side of this process, and for how long it stays so."""

    replica: str
    mode: Mode
    policy_sha256: str
    weights_sha256: tuple[str, ...] = ()
    ohttp: tuple[OhttpKey, ...] = ()
    tls: tuple[TlsKey, ...] = ()
    receipt: tuple[ReceiptKey, ...] = ()
    build: Mapping[str, str] = field(default_factory=dict)
    lifetime: timedelta = KEYSET_LIFETIME
    not_after: datetime | None = None  # instead, where the keyset's digest is to stay as it is


@dataclass(frozen=True, slots=True, kw_only=True)
class Attester:
    """Makes one bundle per nonce. Blocking: a quote takes milliseconds to seconds."""

    tee: QuotingTee = field(repr=False)
    facts: Callable[[], AttestedFacts]
    utc_now: Callable[[], datetime]

    def bundle(self, nonce: Nonce) -> bytes:
        """The evidence bundle as JSON bytes, fresh for this nonce.

        Raises: GatewayError `tee_unavailable` when the device does not answer.
        """
        at = self.utc_now()
        try:
            return make_bundle(self.tee, nonce, self._keyset(at), at).to_json()
        except collect.TeeUnavailable as err:
            raise GatewayError(
                "tee_unavailable", f"The TEE gives no Evidence: {_said(err)}"
            ) from err

    def keyset_sha256(self) -> str:
        """Hex digest of the keyset that a bundle made now would hold."""
        return keyset_digest(self._keyset(self.utc_now())).hex()

    def _keyset(self, at: datetime) -> JsonObject:
        facts = self.facts()
        return build_keyset(
            not_after=facts.not_after or at + facts.lifetime,
            replica=facts.replica,
            mode=facts.mode,
            ohttp=facts.ohttp,
            tls=facts.tls,
            receipt=facts.receipt,
            policy_sha256=facts.policy_sha256,
            weights_sha256=facts.weights_sha256,
            build=facts.build,
        )


def open_tee(
    kind: str,
    *,
    allows_simulated: bool,
    role: str,
    open_guest: Callable[[], QuotingTee] = collect.open_tee,
) -> QuotingTee:
    """The TEE of this machine, or the simulated one where it is asked for.

    `auto` means real hardware; a policy that allows simulated Evidence lets it fall back.

    Raises: GatewayError `tee_unavailable`, with the reason and what to do about it.
    """
    if kind == "auto":
        try:
            tee = open_guest()
        except collect.TeeUnavailable as err:
            if not allows_simulated:
                raise GatewayError(
                    "tee_unavailable",
                    f"No TEE, and the policy refuses a simulated one: {_said(err)}",
                ) from err
            _log.warning("no TEE of this machine's own: %s", _said(err))
        else:
            _log.info("the %s attests with this machine's TEE", role, extra={"tee": tee.tee})
            return tee
    _log.warning(
        "THE TEE IS SIMULATED: nothing protects this %s; a production policy refuses it", role
    )
    return FakeTee()


def _said(err: collect.TeeUnavailable) -> str:
    return f"{err} (next: {err.next_step})"

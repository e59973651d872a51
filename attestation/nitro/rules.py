"""Is what a genuine Nitro document claims good enough?  One small class per rule.

The first half comes from the AppraisalPolicy; the second binds one document to one session, by
value: what was asked for or announced must be exactly what the enclave had signed.
"""

import hmac
from dataclasses import dataclass
from datetime import datetime, timedelta

from attestation.errors import PolicyViolation, StaleEvidence
from attestation.nitro.document import MAX_PCRS, PCR_BYTES
from attestation.nitro.verifier import NitroClaims
from attestation.policy_table import PolicyTable
from attestation.rules import (
    EndingRule,
    RegistersExpected,
    Rule,
    end_of_age,
    read_reference_values,
)

MAX_CLOCK_SKEW_S = 60
MAX_AGE_S = 24 * 3600  # its certificate lives three hours
_LAUNCH_PCRS = (0, 1, 2)  # image, kernel and boot, application
_REGISTERS = {f"pcr{index}": PCR_BYTES for index in range(MAX_PCRS)}


@dataclass(frozen=True, slots=True, kw_only=True)
class DebugOff:
    """The enclave has no console: in debug mode AWS zeroes its PCRs, so they prove nothing."""

    name: str = "debug_off"
    passed: str = "debug is off"

    def require(self, claims: NitroClaims) -> None:
        """Raises: PolicyViolation("debug_enabled"): any launch PCR is zero or missing."""
        for index in _LAUNCH_PCRS:
            if not any(claims.document.pcrs.get(index, b"")):
                raise PolicyViolation("debug_enabled", f"PCR{index} is zero: debug is on")


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentRecent(EndingRule[NitroClaims]):
    """The document is as young as the policy wants; its certificate alone would give it hours."""

    max_age_s: int
    name: str = "document_age"
    passed: str = "the document is recent"

    def require(self, claims: NitroClaims) -> None:
        """Raises: StaleEvidence("evidence_age"): too old, or from the future."""
        age_s = (claims.verified_at - claims.document.made_at).total_seconds()
        if not -MAX_CLOCK_SKEW_S <= age_s <= self.max_age_s:
            raise StaleEvidence(
                "evidence_age", f"document is {age_s:.0f} s old, at most {self.max_age_s}"
            )

    def end(self, claims: NitroClaims) -> datetime:
        """When the document reaches that age."""
        return end_of_age(claims.document.made_at, timedelta(seconds=self.max_age_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class PcrsExpected(RegistersExpected[NitroClaims]):
    """The enclave's image, kernel and application are those of the reference values."""

    passed: str = "every PCR is one of its reference values"

    def observe(self, claims: NitroClaims) -> dict[str, str]:
        """The PCRs that the document has, lower-case hex."""
        return {f"pcr{index}": value.hex() for index, value in claims.document.pcrs.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class NonceExpected:
    """The document answers this nonce."""

    nonce: bytes
    name: str = "nonce"
    passed: str = "it answers the nonce that was asked with"

    def require(self, claims: NitroClaims) -> None:
        """Raises: StaleEvidence("nonce_mismatch")."""
        if not _is_same(claims.document.nonce, self.nonce):
            raise StaleEvidence("nonce_mismatch", "document answers another nonce, or none")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicKeyExpected:
    """The enclave had this key signed."""

    public_key: bytes
    name: str = "public_key"
    passed: str = "the enclave had this key signed"

    def require(self, claims: NitroClaims) -> None:
        """Raises: StaleEvidence("channel_binding")."""
        if not _is_same(claims.document.public_key, self.public_key):
            raise StaleEvidence("channel_binding", "document is about another key, or none")


@dataclass(frozen=True, slots=True, kw_only=True)
class UserDataExpected:
    """The enclave had this value signed."""

    user_data: bytes
    name: str = "user_data"
    passed: str = "the enclave had this value signed"

    def require(self, claims: NitroClaims) -> None:
        """Raises: StaleEvidence("report_data")."""
        if not _is_same(claims.document.user_data, self.user_data):
            raise StaleEvidence("report_data", "document holds other user data, or none")


def parse_rules(table: PolicyTable) -> tuple[Rule[NitroClaims], ...]:
    """The rules of a policy's Nitro table: ``debug``, ``max_age_s``, ``measurements``."""
    table.choice("debug", ("refused",))  # no policy can allow it; it is there to be read
    rules: list[Rule[NitroClaims]] = [
        DebugOff(),
        DocumentRecent(max_age_s=table.number("max_age_s", maximum=MAX_AGE_S)),
    ]
    if values := read_reference_values(table.table("measurements"), _REGISTERS):
        rules.append(PcrsExpected(values=values))
    table.finish()
    return tuple(rules)


def _is_same(signed: bytes | None, expected: bytes) -> bool:
    """Absent is never equal, and neither is nothing: an empty expectation would check nothing."""
    return signed is not None and bool(expected) and hmac.compare_digest(signed, expected)

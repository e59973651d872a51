"""Why could an endorsement not be had?

UntrustedEndorsement
`-- FetchFailed   code endorsement_missing, or crl_missing for a CRL or an OCSP answer
FetchConfigError  the settings themselves cannot be used

A message names the service, the host and what was asked for; never a query, since a chip id in it
names a machine, and never anything that was received.
"""

from typing import Literal

from attestation.errors import UntrustedEndorsement

MissingCode = Literal["crl_missing", "endorsement_missing"]
FetchReason = Literal[
    "content",  # an answer of another form
    "not_found",  # the service does not have it
    "offline",  # nothing usable in the cache, and fetching is off
    "redirect",  # to a place that is not allowed, or too many
    "refused",  # a status that means no
    "rollback",  # older than what was seen before
    "timeout",  # too slow
    "too_large",
    "unreachable",  # no connection, or the service is broken
    "unsuited",  # the Evidence does not say what to ask for
]


class FetchFailed(UntrustedEndorsement):
    """It could not be had: whether it would have been good is not known."""

    def __init__(self, code: MissingCode, reason: FetchReason, message: str) -> None:
        super().__init__(code, message)
        self.reason = reason


class FetchConfigError(Exception):
    """The fetch settings cannot be used; the message lists every problem found."""

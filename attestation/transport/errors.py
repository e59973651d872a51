"""Why did an attested transport send nothing, or not believe what came back?

They are httpx's errors, since callers of httpx expect no others; an SDK shows them as a failed
connection, with one of these as its cause.

httpx.TransportError
`-- AttestedTransportError
    |-- EvidenceRefused      code of the verdict   the gateway's Evidence was judged, and refused
    |-- GatewayUnavailable   evidence_unavailable  there is no verdict
    `-- ChannelBroken        code of the channel   an answer that does not open, or is cut short
"""

import httpx

from attestation.errors import Silence
from attestation.model import AttestationResult


class AttestedTransportError(httpx.TransportError):
    """Root of the transport's errors; ``code`` is stable, as in every report of it."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class EvidenceRefused(AttestedTransportError):
    """Nothing is sent to this gateway. ``result`` is None when the Evidence could not be read."""

    def __init__(self, code: str, message: str, result: AttestationResult | None) -> None:
        super().__init__(code, message)
        self.result = result


class GatewayUnavailable(AttestedTransportError):
    """There is no verdict."""

    def __init__(self, code: str, message: str, *, reason: Silence) -> None:
        super().__init__(code, message)
        self.reason = reason


class ChannelBroken(AttestedTransportError):
    """A sealed answer cannot be opened or ended early: what was read of it is not whole."""

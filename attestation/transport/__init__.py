"""How does a client speak to an attested gateway, and to nothing else?

``attested_client(url)`` is an ``httpx.Client`` for any program that takes one::

    from attestation.transport import attested_client
    from openai import OpenAI

    client = OpenAI(base_url=url, api_key=key, http_client=attested_client(url))

It asks the gateway for Evidence over a fresh nonce, appraises it, and seals each request to the key
that the Evidence vouches for; nothing is sent before, and nothing to anybody else.

============  ==============================================================================
url           where is a gateway asked?
silence       why did it not give what it was asked for?
evidence      what does a server send, and which TLS key did the connection use?
session       what may a client rely on, and until when?
verify        asks, completes and judges: one session
keeper        one session for all, and one verification at a time
pinned        TLS that goes no further than the handshake with another key
sealing       an HTTP request sealed, its answer opened; no I/O
opened        an answer that opens as it is read
transports    the two httpx transports
client        one call for each
============  ==============================================================================
"""

from attestation.transport.client import (
    async_client_over,
    attested_async_client,
    attested_client,
    client_over,
    gateway_keeper,
    gateway_source,
)
from attestation.transport.errors import (
    AttestedTransportError,
    ChannelBroken,
    EvidenceRefused,
    GatewayUnavailable,
)
from attestation.transport.evidence import (
    MAX_ERROR_BYTES,
    TIMEOUT_S,
    Delivery,
    error_code,
    fetch_evidence,
    fetch_receipt,
)
from attestation.transport.keeper import SessionKeeper
from attestation.transport.pinned import ClientCertificate
from attestation.transport.session import Session
from attestation.transport.transports import AsyncAttestedTransport, AttestedTransport
from attestation.transport.url import (
    API_PREFIX,
    DEFAULT_PORT,
    KEYS_PATH,
    EvidenceUrl,
    parse_evidence_url,
)
from attestation.transport.verify import GatewayVerifier

__all__ = [
    "API_PREFIX",
    "DEFAULT_PORT",
    "KEYS_PATH",
    "MAX_ERROR_BYTES",
    "TIMEOUT_S",
    "AsyncAttestedTransport",
    "AttestedTransport",
    "AttestedTransportError",
    "ChannelBroken",
    "ClientCertificate",
    "Delivery",
    "EvidenceRefused",
    "EvidenceUrl",
    "GatewayUnavailable",
    "GatewayVerifier",
    "Session",
    "SessionKeeper",
    "async_client_over",
    "attested_async_client",
    "attested_client",
    "client_over",
    "error_code",
    "fetch_evidence",
    "fetch_receipt",
    "gateway_keeper",
    "gateway_source",
    "parse_evidence_url",
]

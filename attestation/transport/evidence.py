"""What Evidence does a server send, and which TLS key did the very connection that brought it use?

One GET over TLS 1.3, bounded in time and bytes, without redirects or the environment's proxies. The
certificate says whose server it is; whether its key belongs to attested hardware is appraised later
by what is returned here.
"""

import asyncio
import hashlib
import json
import re
import ssl
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from attestation.certificate import subject_public_key_info
from attestation.channel.keyconfig import MAX_KEY_LIST_BYTES
from attestation.errors import MalformedEvidence, Silence
from attestation.model import MAX_BUNDLE_BYTES, Nonce
from attestation.receipt import MAX_RECEIPT_BYTES
from attestation.transport.pinned import ClientCertificate, client_context, pinned_context
from attestation.transport.silence import answering, refused
from attestation.transport.url import API_PREFIX, KEYS_PATH, EvidenceUrl

TIMEOUT_S: Final = 15.0
MAX_ERROR_BYTES: Final = 64 * 1024
MAX_NODES_BYTES: Final = 1024 * 1024
MAX_NODES: Final = 64  # of which a client looks for one that it may believe
_CODE = re.compile(r"[a-z0-9_]{1,64}")
_NODE = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")  # as a gateway's configuration names workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Evidence as received, and SHA-256 of the SubjectPublicKeyInfo of the connection's peer.

    ``keys`` is the list of OHTTP key configurations, where it was asked for.
    """

    evidence: bytes
    tls_key_sha256: bytes
    keys: bytes = b""


def fetch_evidence(
    source: EvidenceUrl,
    *,
    nonce: Nonce,
    ca_file: Path | None,
    node: str | None = None,
    proxy: str | None = None,
    client_certificate: ClientCertificate | None = None,
    timeout_s: float = TIMEOUT_S,
    with_keys: bool = False,
) -> Delivery:
    """What ``source`` answers to ``nonce``; with ``node``, that worker's Evidence.

    ``with_keys`` asks for its OHTTP keys as well, over the same connection.

    The server's certificate ends in ``ca_file``, or, when that is None, in one of the system's
    CAs. Blocks; not for use on an event loop's own thread.

    Raises: EvidenceUnavailable; FetchConfigError: no CA certificates in ``ca_file``.
    """
    client = _client(client_context(ca_file, client_certificate), proxy, timeout_s)
    params = {"nonce": nonce.hex()} | ({} if node is None else {"node": node})
    return asyncio.run(_fetch(client, source, params, timeout_s, with_keys=with_keys))


def fetch_nodes(
    source: EvidenceUrl,
    *,
    ca_file: Path | None,
    proxy: str | None = None,
    client_certificate: ClientCertificate | None = None,
    timeout_s: float = TIMEOUT_S,
) -> tuple[str, ...]:
    """The names of the workers behind a gateway, those that it holds verified first; unproven.

    Raises: EvidenceUnavailable; FetchConfigError.
    """
    client = _client(client_context(ca_file, client_certificate), proxy, timeout_s)
    return asyncio.run(_fetch_nodes(client, source, timeout_s))


def fetch_receipt(
    source: EvidenceUrl,
    receipt_id: str,
    *,
    api_key: str,
    pins: Collection[bytes],
    ca_file: Path | None,
    proxy: str | None = None,
    client_certificate: ClientCertificate | None = None,
    timeout_s: float = TIMEOUT_S,
) -> bytes:
    """The receipt, unverified; ``api_key`` goes to nobody whose TLS key is not one of ``pins``.

    Raises: EvidenceUnavailable; FetchConfigError.
    """
    client = _client(pinned_context(ca_file, pins, client_certificate), proxy, timeout_s)
    client.headers["authorization"] = f"Bearer {api_key}"
    path = f"{source.path_prefix}/receipts/{receipt_id}"

    async def fetch() -> bytes:
        async with answering(source, timeout_s), client:
            answer = await _get(client, source, path, {})
            return _whole(source, answer, MAX_RECEIPT_BYTES, reason="no_receipt")

    return asyncio.run(fetch())


def error_code(body: bytes) -> str:
    """The ``code`` of an error in OpenAI's shape or problem+json; empty when there is none."""
    try:
        value = json.loads(body[:MAX_ERROR_BYTES])
    except (ValueError, RecursionError):
        return ""
    error = value.get("error", value) if isinstance(value, dict) else None
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, str) and _CODE.fullmatch(code) else ""


def _client(context: ssl.SSLContext, proxy: str | None, timeout_s: float) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        trust_env=False,
        verify=context,
        proxy=proxy,
        timeout=timeout_s,
        follow_redirects=False,
        headers={"accept-encoding": "identity", "user-agent": "starshade"},
    )


async def _fetch_nodes(
    client: httpx.AsyncClient, source: EvidenceUrl, timeout_s: float
) -> tuple[str, ...]:
    async with answering(source, timeout_s), client:
        answer = await _get(client, source, f"{source.path_prefix}/nodes", {})
        body = _whole(source, answer, MAX_NODES_BYTES)
    try:
        entries = json.loads(body)["data"]
        entries.sort(key=lambda entry: entry["state"] not in ("verified", "refreshing"))
        names = [str(entry["id"]) for entry in entries]
        return tuple(name for name in names if _NODE.fullmatch(name))[:MAX_NODES]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as err:
        raise refused(source, "a list of workers that is none") from err


async def _fetch(
    client: httpx.AsyncClient,
    source: EvidenceUrl,
    params: Mapping[str, str],
    timeout_s: float,
    *,
    with_keys: bool = False,
) -> Delivery:
    hint = "" if source.path_prefix == API_PREFIX else f"; does the URL end in {API_PREFIX}?"
    keys = b""
    async with answering(source, timeout_s), client:
        answer = await _get(client, source, f"{source.path_prefix}/attestation", params)
        evidence = _whole(source, answer, MAX_BUNDLE_BYTES, hint=hint)
        if with_keys:
            answer_keys = await _get(client, source, KEYS_PATH, {})
            keys = _whole(source, answer_keys, MAX_KEY_LIST_BYTES, hint=f" ({KEYS_PATH})")
    try:
        spki = subject_public_key_info(answer.certificate, what="certificate")
    except MalformedEvidence as err:
        raise refused(source, "a certificate that is not X.509") from err
    return Delivery(evidence=evidence, tls_key_sha256=hashlib.sha256(spki).digest(), keys=keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    status: int
    encoding: str
    body: bytes
    certificate: bytes


async def _get(
    client: httpx.AsyncClient, source: EvidenceUrl, path: str, params: Mapping[str, str]
) -> _Answer:
    url = httpx.URL(f"{source.origin}{path}", params=params)
    async with client.stream("GET", url) as response:
        tls = response.extensions["network_stream"].get_extra_info("ssl_object")
        certificate = tls.getpeercert(binary_form=True)
        return _Answer(
            status=response.status_code,
            encoding=response.headers.get("content-encoding", "identity"),
            body=await _read(response),
            certificate=certificate,
        )


def _whole(
    source: EvidenceUrl,
    answer: _Answer,
    max_bytes: int,
    *,
    hint: str = "",
    reason: Silence = "no_evidence",
) -> bytes:
    """Raises: EvidenceUnavailable."""
    if answer.status != 200:
        said = f"HTTP {answer.status} {error_code(answer.body)}".rstrip() + hint
    elif answer.encoding != "identity":
        said = "an encoding that was not asked for"
    elif len(answer.body) > max_bytes:
        said = f"more than {max_bytes} bytes"
    else:
        return answer.body
    raise refused(source, said, reason)


async def _read(response: httpx.Response) -> bytes:
    """The body as it was sent; one that is too long is cut soon after its limit."""
    received = bytearray()
    async for chunk in response.aiter_raw():
        received += chunk
        if len(received) > MAX_BUNDLE_BYTES:
            break
    return bytes(received)

"""Is the gateway that we are about to load the attested one, and which TLS key is its own?

The load generator is a RelyingParty like any client: it appraises the gateway's evidence over a
fresh nonce and requires the TLS key of its own connection in the attested keyset.
"""

import http.client
import json
import ssl
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

from geventhttpclient.response import HTTPParseError

from attestation.anchors import load_anchors
from attestation.appraise import appraise
from attestation.errors import AttestationError
from attestation.keyset import parse_keyset
from attestation.model import AttestationResult, Nonce, parse_bundle
from attestation.policy import AppraisalPolicy
from loadtest.client import Target, spki_sha256
from loadtest.errors import (
    GatewayNotAttested,
    GatewayUnreachable,
    LoadTestError,
    TargetRefused,
)

MAX_BUNDLE_BYTES = 4 * 1024 * 1024
API_PREFIX = "/v1"
_TIMEOUT_S = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AttestedTarget:
    """A target whose TLS key the evidence covers, and the verdict that says so."""

    target: Target
    result: AttestationResult


def attest_gateway(
    base_url: str,
    *,
    ca_path: Path,
    policy: AppraisalPolicy,
    nonce: Nonce,
    at: datetime,
) -> AttestedTarget:
    """Fetch and appraise the gateway's evidence, then pin its TLS key.

    Raises: GatewayUnreachable, GatewayNotAttested, LoadTestError for a URL that is not https.
    """
    host, port, prefix = _parse_url(base_url)
    body, certificate = _fetch(host, port, prefix, ca_path=ca_path, nonce=nonce)
    seen = spki_sha256(certificate)
    try:
        bundle = parse_bundle(body)
        result = appraise(bundle, nonce=nonce, policy=policy, anchors=load_anchors(), at=at)
        if not result.is_accepted:
            raise GatewayNotAttested(f"the gateway's evidence was refused: {result.code}")
        attested = {key.spki_sha256 for key in parse_keyset(bundle.keyset).tls}
    except AttestationError as err:
        raise GatewayNotAttested(f"the gateway's evidence is unreadable ({err.code})") from err
    if seen not in attested:
        raise GatewayNotAttested("the TLS key in use is not in the attested keyset")
    target = Target(
        host=host,
        port=port,
        path_prefix=prefix,
        ca_path=ca_path,
        spki_sha256=seen,
    )
    return AttestedTarget(target=target, result=result)


def _parse_url(base_url: str) -> tuple[str, int, str]:
    """Host, port and path prefix. Raises: LoadTestError, which never repeats a password."""
    try:
        url = urlsplit(base_url)
        port = url.port or 443
    except ValueError:
        url, port = urlsplit(""), 0
    if url.scheme != "https" or not url.hostname or url.username is not None:
        raise LoadTestError("an https URL is needed, like https://127.0.0.1:8443/v1")
    return url.hostname, port, url.path.rstrip("/")


def _fetch(
    host: str, port: int, prefix: str, *, ca_path: Path, nonce: Nonce
) -> tuple[bytes, bytes]:
    """The evidence bundle and the DER certificate of the connection that delivered it."""
    try:
        context = ssl.create_default_context(cafile=str(ca_path))
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        connection = http.client.HTTPSConnection(host, port, timeout=_TIMEOUT_S, context=context)
        try:
            connection.connect()
            certificate = connection.sock.getpeercert(binary_form=True)
            connection.request("GET", f"{prefix}/attestation?nonce={nonce.hex()}")
            response = connection.getresponse()
            body = response.read(MAX_BUNDLE_BYTES + 1)
        finally:
            connection.close()
    except (OSError, http.client.HTTPException) as err:
        hint = "is `starshade up` running?"
        raise GatewayUnreachable(f"no answer from https://{host}:{port} ({hint})") from err
    if certificate is None:
        raise GatewayNotAttested("the gateway showed no certificate")
    if response.status != 200 or len(body) > MAX_BUNDLE_BYTES:
        hint = "" if prefix == API_PREFIX else f"; does the URL end in {API_PREFIX}?"
        raise GatewayNotAttested(
            f"no evidence from the gateway: HTTP {response.status} {_code(body)}{hint}"
        )
    return body, certificate


def require_model(target: Target, *, model: str, api_key: str) -> None:
    """Ask once, on the pinned key, for what each request of the run will need.

    Raises: TargetRefused for a key that the gateway does not know, or for a model that it does not
    serve (naming those it does); GatewayUnreachable, also when it serves none.
    """
    path = f"{target.path_prefix}/models"
    try:
        with closing(target.client(concurrency=1)) as client:
            response = client.get(path, {"authorization": f"Bearer {api_key}"})
            try:
                status, body = int(response.status_code), bytes(response.read(MAX_BUNDLE_BYTES))
            finally:
                response.release()
    except (OSError, HTTPParseError) as err:
        raise GatewayUnreachable(f"no answer from https://{target.host}:{target.port}") from err
    if status == http.HTTPStatus.UNAUTHORIZED:
        raise TargetRefused(f"the gateway refuses this API key: {_code(body) or status}")
    if status != http.HTTPStatus.OK:
        raise GatewayUnreachable(f"the gateway serves no model now: {_code(body) or status}")
    served = _model_ids(body)
    if model not in served:
        raise TargetRefused(f"model {model!r} is not served, but: {', '.join(served) or 'none'}")


def _model_ids(body: bytes) -> list[str]:
    try:
        return [str(entry["id"]) for entry in json.loads(body)["data"]]
    except (ValueError, KeyError, TypeError) as err:
        raise TargetRefused("the gateway's list of models is malformed") from err


def _code(body: bytes) -> str:
    try:
        value = json.loads(body[:65536])
    except ValueError:
        return ""
    error = value.get("error", value) if isinstance(value, dict) else {}
    return str(error.get("code", "")) if isinstance(error, dict) else ""

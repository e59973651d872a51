"""Is the gateway that we are about to load the attested one, and which TLS key is its own?

The load generator is a RelyingParty like any client: it appraises the gateway's evidence over a
fresh nonce and requires the TLS key of its own connection in the attested keyset.
"""

import http
import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from geventhttpclient.response import HTTPParseError

from attestation.anchors import load_anchors
from attestation.model import MAX_BUNDLE_BYTES, AttestationResult
from attestation.policy import AppraisalPolicy
from attestation.transport import (
    ClientCertificate,
    EvidenceRefused,
    EvidenceUrl,
    GatewayUnavailable,
    GatewayVerifier,
    error_code,
    parse_evidence_url,
)
from loadtest.client import Target
from loadtest.errors import (
    GatewayNotAttested,
    GatewayUnreachable,
    LoadTestError,
    TargetRefused,
)


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
    utc_now: Callable[[], datetime],
    collateral_folder: Path,
    client_certificate: ClientCertificate | None = None,
) -> AttestedTarget:
    """Judge the gateway as every client does, then pin the TLS key of the connection.

    Raises: GatewayUnreachable, GatewayNotAttested, LoadTestError for a URL that is not https.
    """
    source = _parse_url(base_url)
    verifier = GatewayVerifier(
        source=source,
        policy=policy,
        anchors=load_anchors(),
        utc_now=utc_now,
        ca_file=ca_path,
        client_certificate=client_certificate,
        collateral_folder=collateral_folder,
    )
    try:
        judged, delivery = verifier.judge()
    except EvidenceRefused as err:
        raise GatewayNotAttested(str(err)) from err
    except GatewayUnavailable as err:
        is_there = err.reason not in ("no_answer", "not_trusted")
        raise (GatewayNotAttested if is_there else GatewayUnreachable)(str(err)) from err
    result = judged.result
    if not result.is_accepted:
        reason = next((check.reason for check in result.checks if check.outcome == "fail"), "")
        raise GatewayNotAttested(f"the gateway's evidence was refused: {result.code}: {reason}")
    target = Target(
        host=source.host,
        port=source.port,
        path_prefix=source.path_prefix,
        ca_path=ca_path,
        client_certificate=client_certificate,
        spki_sha256=delivery.tls_key_sha256.hex(),
    )
    return AttestedTarget(target=target, result=result)


def _parse_url(base_url: str) -> EvidenceUrl:
    """Raises: LoadTestError, which never repeats a password."""
    try:
        return parse_evidence_url(base_url)
    except ValueError as err:
        raise LoadTestError(str(err)) from err


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
        raise TargetRefused(f"the gateway refuses this API key: {error_code(body) or status}")
    if status != http.HTTPStatus.OK:
        raise GatewayUnreachable(f"the gateway serves no model now: {error_code(body) or status}")
    served = _model_ids(body)
    if model not in served:
        raise TargetRefused(f"model {model!r} is not served, but: {', '.join(served) or 'none'}")


def _model_ids(body: bytes) -> list[str]:
    try:
        return [str(entry["id"]) for entry in json.loads(body)["data"]]
    except (ValueError, KeyError, TypeError) as err:
        raise TargetRefused("the gateway's list of models is malformed") from err

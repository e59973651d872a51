"""How does a program get a client for one attested gateway?  One call, for threads or a loop."""

import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar

import httpx

from attestation.anchors import load_anchors
from attestation.fetch.cache import default_folder
from attestation.fetch.config import url_problem
from attestation.keyset import Mode
from attestation.policy import AppraisalPolicy, load_policy
from attestation.transport.errors import EvidenceRefused
from attestation.transport.keeper import SessionKeeper
from attestation.transport.pinned import ClientCertificate
from attestation.transport.transports import AsyncAttestedTransport, AttestedTransport
from attestation.transport.url import API_PREFIX, EvidenceUrl, parse_evidence_url
from attestation.transport.verify import GatewayVerifier

TransportT = TypeVar("TransportT", AttestedTransport, AsyncAttestedTransport)
TIMEOUT: Final = httpx.Timeout(600.0, connect=10.0)  # a long answer may take its time


def attested_client(
    url: str,
    *,
    policy: str | AppraisalPolicy = "production",
    ca_file: Path | str | None = None,
    mode: Mode | None = None,
    weights_sha256: Sequence[str] = (),
    proxy: str | None = None,
    client_certificate: ClientCertificate | None = None,
    timeout: httpx.Timeout = TIMEOUT,
) -> httpx.Client:
    """An httpx client that talks to the gateway at ``url`` alone, verified and sealed.

    ``policy`` is "production", "development" or a file. ``ca_file`` None trusts the system's CAs,
    or those of ``SSL_CERT_FILE``; ``client_certificate`` is shown to a gateway that wants one.
    Nothing is asked before the first request.

    Raises: ValueError: not an https URL, or a proxy of no use; PolicyError.
    """
    keeper = gateway_keeper(
        url,
        policy=policy,
        ca_file=ca_file,
        mode=mode,
        weights_sha256=weights_sha256,
        proxy=proxy,
        client_certificate=client_certificate,
    )
    return client_over(
        keeper,
        url,
        ca_file=ca_file,
        proxy=proxy,
        client_certificate=client_certificate,
        timeout=timeout,
    )


def attested_async_client(
    url: str,
    *,
    policy: str | AppraisalPolicy = "production",
    ca_file: Path | str | None = None,
    mode: Mode | None = None,
    weights_sha256: Sequence[str] = (),
    proxy: str | None = None,
    client_certificate: ClientCertificate | None = None,
    timeout: httpx.Timeout = TIMEOUT,
) -> httpx.AsyncClient:
    """``attested_client`` for an event loop."""
    keeper = gateway_keeper(
        url,
        policy=policy,
        ca_file=ca_file,
        mode=mode,
        weights_sha256=weights_sha256,
        proxy=proxy,
        client_certificate=client_certificate,
    )
    return async_client_over(
        keeper,
        url,
        ca_file=ca_file,
        proxy=proxy,
        client_certificate=client_certificate,
        timeout=timeout,
    )


def client_over(
    keeper: SessionKeeper,
    url: str,
    *,
    ca_file: Path | str | None = None,
    proxy: str | None = None,
    client_certificate: ClientCertificate | None = None,
    timeout: httpx.Timeout = TIMEOUT,
) -> httpx.Client:
    """``attested_client`` over sessions that the caller keeps."""
    transport = _transport(
        AttestedTransport,
        keeper,
        url,
        ca_file=ca_file,
        proxy=proxy,
        client_certificate=client_certificate,
    )
    return httpx.Client(transport=transport, timeout=timeout, trust_env=False)


def async_client_over(
    keeper: SessionKeeper,
    url: str,
    *,
    ca_file: Path | str | None = None,
    proxy: str | None = None,
    client_certificate: ClientCertificate | None = None,
    timeout: httpx.Timeout = TIMEOUT,
) -> httpx.AsyncClient:
    """``attested_async_client`` over sessions that the caller keeps."""
    transport = _transport(
        AsyncAttestedTransport,
        keeper,
        url,
        ca_file=ca_file,
        proxy=proxy,
        client_certificate=client_certificate,
    )
    return httpx.AsyncClient(transport=transport, timeout=timeout, trust_env=False)


def _transport(
    kind: type[TransportT],
    keeper: SessionKeeper,
    url: str,
    *,
    ca_file: Path | str | None,
    proxy: str | None,
    client_certificate: ClientCertificate | None,
) -> TransportT:
    return kind(
        keeper,
        source=gateway_source(url),
        utc_now=_utc_now,
        rng=os.urandom,
        ca_file=_path(ca_file),
        proxy=proxy,
        client_certificate=client_certificate,
    )


def gateway_keeper(
    url: str,
    *,
    policy: str | AppraisalPolicy = "production",
    ca_file: Path | str | None = None,
    mode: Mode | None = None,
    weights_sha256: Sequence[str] = (),
    proxy: str | None = None,
    client_certificate: ClientCertificate | None = None,
    collateral_folder: Path | None = None,
    is_offline: bool = False,
    on_refused: Callable[[EvidenceRefused], None] = lambda _refused: None,
) -> SessionKeeper:
    """The sessions of the gateway at ``url``.

    ``is_offline`` asks nobody but the gateway, and writes nothing; else collateral is kept, in the
    user's folder unless another is given.

    Raises: ValueError; PolicyError.
    """
    if problem := "" if proxy is None else url_problem(proxy):
        raise ValueError(f"proxy: {problem}")
    verifier = GatewayVerifier(
        source=gateway_source(url),
        policy=policy if isinstance(policy, AppraisalPolicy) else load_policy(policy),
        anchors=load_anchors(),
        utc_now=_utc_now,
        ca_file=_path(ca_file),
        proxy=proxy,
        client_certificate=client_certificate,
        mode=mode,
        weights_sha256=tuple(weights_sha256),
        collateral_folder=collateral_folder or _collateral_folder(),
        is_offline=is_offline,
    )
    return SessionKeeper(verifier.verify, utc_now=_utc_now, on_refused=on_refused)


def gateway_source(url: str) -> EvidenceUrl:
    """Where its Evidence is; the path may be left out. Raises: ValueError."""
    source = parse_evidence_url(url)
    return source if source.path_prefix else source.with_prefix(API_PREFIX)


def _path(ca_file: Path | str | None) -> Path | None:
    return None if ca_file is None else Path(ca_file)


def _collateral_folder() -> Path:
    return default_folder(os.environ.get("XDG_CACHE_HOME"))  # noqa: TID251 - the edge of the library


def _utc_now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251 - the edge of the library

"""How is the gateway put together?  Its composition root: config in, app out."""

import hashlib
import logging
import os
import random
import secrets
import time
from functools import partial
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from opentelemetry.sdk.trace.export import SpanExporter
from sqlalchemy import Engine

from attestation import collect
from attestation.anchors import load_anchors
from attestation.cache import VerifiedCache
from attestation.devices import ocsp_grace
from attestation.keyset import TlsKey
from gateway.app import GatewayApp
from gateway.attest import LiveAttestation
from gateway.audit import (
    AuditLog,
)
from gateway.audit_head import HeadFile
from gateway.auth import Authenticator, TenantLimits
from gateway.collateral import Completer, Roots
from gateway.config import StarshadeConfig
from gateway.counts import RequestCounts
from gateway.db import ApiKeyStore, migrate, open_engine
from gateway.db.writer import DatabaseWriter
from gateway.doors.edge import EdgeDoors
from gateway.doors.wiring import build_doors
from gateway.drain import Drain
from gateway.facts import AttestFacts
from gateway.files import locked, make_private_dir, write_atomic
from gateway.lifecycle import Lifecycle
from gateway.limits import RequestLimits
from gateway.observe import Clocks, Tracing
from gateway.problems import GatewayError
from gateway.process import (
    GuestOpener,
    configured_policy,
    new_request_id,
    own_drain_s,
    span_provider,
    system_clocks,
    utc_now,
)
from gateway.quotas import Quotas, three_quarters
from gateway.receipts import ReceiptBook
from gateway.registration import WorkerRegistry, named
from gateway.relay import Relay
from gateway.services import Services
from gateway.trust import Trust, TrustSource, load_denied
from gateway.worker.attester import KEYSET_LIFETIME, AttestedFacts, Attester, open_tee
from gateway.workers import WorkerDirectory
from telemetry import semconv

_log = logging.getLogger(__name__)

SALT_BYTES: Final = 32
_GATEWAY_ID: Final = "gateway"


def build_gateway_app(
    config: StarshadeConfig,
    *,
    exporter: SpanExporter | None = None,
    open_guest: GuestOpener = collect.open_tee,
) -> GatewayApp:
    """The gateway's ASGI app; opens and migrates its database.

    `exporter` takes the place of the configured endpoint, `open_guest` of this machine's TEE.

    Raises: attestation.errors.PolicyError, OSError, sqlalchemy errors.
    """
    trust = TrustSource(partial(_load_trust, config))
    clocks = system_clocks()
    engine = open_engine(config.database_url)
    migrate(engine)
    provider = span_provider(config, semconv.SERVICE_GATEWAY, _GATEWAY_ID, exporter)
    tracing = Tracing(provider=provider, clocks=clocks, instance_id=_GATEWAY_ID)
    drain = Drain(drain_s=own_drain_s(config.gateway.drain_s))
    verified = VerifiedCache()
    writer = DatabaseWriter(engine, monotonic_ns=clocks.monotonic_ns)
    audit = _audit_log(config, writer, clocks)

    def attested(facts: AttestFacts) -> None:
        tracing.attested(facts)
        audit.attested(facts)

    def attestation(address: str) -> LiveAttestation:
        return _attestation(address, config, trust, verified, clocks)

    configured = named(config.gateway.workers)
    directory = WorkerDirectory(
        [(node_id, attestation(address)) for address, node_id in configured.items()],
        utc_now=utc_now,
        clocks=clocks,
        jitter=random.random,  # noqa: TID251 - the process edge
        report=attested,
    )
    receipts = _receipts(config, engine, writer, trust, audit, clocks)
    limits = RequestLimits(
        max_body_bytes=config.gateway.max_body_bytes,
        max_concurrent_streams=config.gateway.max_concurrent_streams,
    )
    doors = build_doors(config, limits, directory, drain, audit)
    services = Services(
        authenticator=Authenticator(
            ApiKeyStore(engine), clock_s=time.monotonic, unix_ns=clocks.unix_ns
        ),
        directory=directory,
        relay=_relay(config, directory, drain, clocks),
        receipts=receipts,
        audit=audit,
        registry=WorkerRegistry(
            directory, configured=configured, attestation=attestation, audit=audit
        ),
        quotas=_quotas(config, clocks),
        counts=RequestCounts(),
        tracing=tracing,
        drain=drain,
        attester=_gateway_attester(config, trust, directory, receipts, doors, open_guest),
        doors=doors,
        utc_now=utc_now,
        new_request_id=new_request_id,
    )

    life = Lifecycle(
        engine=engine,
        provider=provider,
        writer=writer,
        audit=audit,
        trust=trust,
        directory=directory,
        receipts=receipts,
        unix_ns=clocks.unix_ns,
        request_deadline_s=config.gateway.request_deadline_s,
    )
    return GatewayApp(
        services,
        limits=limits,
        on_started=life.start,
        on_stopped=life.stop,
        reload=life.reload,
        is_padded=config.gateway.privacy.padding,
        has_cadence=config.gateway.privacy.fixed_cadence,
    )


def _load_trust(config: StarshadeConfig) -> Trust:
    """Raises: PolicyError."""
    return Trust(policy=configured_policy(config), denied=load_denied(config.gateway.deny_file))


def _audit_log(config: StarshadeConfig, writer: DatabaseWriter, clocks: Clocks) -> AuditLog:
    return AuditLog(
        writer,
        head_file=HeadFile(config.paths.audit_head, monotonic_ns=clocks.monotonic_ns),
        utc_now=utc_now,
        monotonic_ns=clocks.monotonic_ns,
    )


def _relay(
    config: StarshadeConfig, directory: WorkerDirectory, drain: Drain, clocks: Clocks
) -> Relay:
    return Relay(
        directory=directory,
        drain=drain,
        salt_secret=_salt_secret(config),
        deadline_s=config.gateway.request_deadline_s,
        silence_s=config.gateway.worker_silence_s,
        rng=os.urandom,
        utc_now=utc_now,
        clocks=clocks,
        log_fault=lambda description: _log.error("a stream failed: %s", description),
    )


def _receipts(
    config: StarshadeConfig,
    engine: Engine,
    writer: DatabaseWriter,
    trust: TrustSource,
    audit: AuditLog,
    clocks: Clocks,
) -> ReceiptBook:
    return ReceiptBook(
        engine=engine,
        writer=writer,
        key=Ed25519PrivateKey.generate(),
        replica=_GATEWAY_ID,
        policy_sha256=lambda: trust.current.policy.sha256,
        audit_head=lambda: audit.head,
        utc_now=utc_now,
        monotonic_ns=clocks.monotonic_ns,
        new_id=lambda: secrets.token_hex(16),
        keep_days=config.gateway.receipt_days,
    )


def _quotas(config: StarshadeConfig, clocks: Clocks) -> Quotas:
    settings, max_open = config.gateway.quota, config.gateway.quota.open_requests
    if max_open is None:
        max_open = three_quarters(config.gateway.max_concurrent_streams)
    return Quotas(
        defaults=TenantLimits(
            requests_per_minute=settings.requests_per_minute,
            tokens_per_minute=settings.tokens_per_minute,
            open_requests=max_open,
        ),
        max_open_tokens=config.gateway.max_open_tokens,
        clock_ns=clocks.monotonic_ns,
    )


def _attestation(
    address: str,
    config: StarshadeConfig,
    trust: TrustSource,
    cache: VerifiedCache,
    clocks: Clocks,
) -> LiveAttestation:
    anchors = load_anchors()

    def roots() -> Roots:
        policy = trust.current.policy
        return Roots(anchors=anchors.of_kinds(policy.anchor_kinds), ocsp_grace=ocsp_grace(policy))

    return LiveAttestation(
        address=address,
        trust=lambda: trust.current,
        anchors=anchors,
        cache=cache,
        completer=Completer(
            settings=config.gateway.collateral,
            folder=config.paths.collateral_dir,
            roots=roots,
            monotonic_ns=clocks.monotonic_ns,
        ),
        rng=os.urandom,
        utc_now=utc_now,
        clocks=clocks,
    )


def _gateway_attester(
    config: StarshadeConfig,
    trust: TrustSource,
    directory: WorkerDirectory,
    receipts: ReceiptBook,
    doors: EdgeDoors,
    open_guest: GuestOpener,
) -> Attester | None:
    try:
        tee = open_tee(
            config.worker.tee,
            allows_simulated=trust.current.policy.allows_simulated,
            role="gateway",
            open_guest=open_guest,
        )
    except GatewayError as err:
        _log.warning("the gateway cannot attest itself: %s", err.message)
        return None

    def facts() -> AttestedFacts:
        spki_sha256 = _spki_sha256(config.paths.server_cert)
        grants = [node.grant for node in directory.nodes if node.grant is not None]
        weights = {grant.facts.weights_sha256 for grant in grants}
        return AttestedFacts(
            replica=_GATEWAY_ID,
            mode=doors.mode,
            policy_sha256=trust.current.policy.sha256,
            weights_sha256=tuple(sorted(filter(None, weights))),
            ohttp=tuple(doors.attested()),
            not_after=doors.changes_at + KEYSET_LIFETIME,
            tls=tuple(
                TlsKey(spki_sha256=spki_sha256, host=host) for host in config.gateway.hostnames
            ),
            receipt=(receipts.key,),
        )

    return Attester(tee=tee, facts=facts, utc_now=utc_now)


def _spki_sha256(certificate: Path) -> str:
    """Read for each bundle: the certificate is renewed while the gateway runs."""
    public_key = x509.load_pem_x509_certificate(certificate.read_bytes()).public_key()
    spki = public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(spki).hexdigest()


def _salt_secret(config: StarshadeConfig) -> bytes:
    """Made when there is no whole one; a new one puts cached prefixes out of reach, no worse."""
    path = config.paths.salt_key
    make_private_dir(path.parent)
    with locked(path.with_suffix(".lock")):
        if not path.exists() or path.stat().st_size != SALT_BYTES:
            write_atomic(path, secrets.token_bytes(SALT_BYTES))
        return path.read_bytes()

"""What does an inference process take from its surroundings?  Clocks, ids, policy, span provider.

The part of the composition root that `gateway.wiring` and `gateway.worker.wiring` share.
"""

import datetime as dt
import secrets
import time
from collections.abc import Callable
from pathlib import Path

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter

from attestation.evidence import QuotingTee
from attestation.keyset import Mode
from attestation.policy import AppraisalPolicy, load_policy
from gateway.config import StarshadeConfig
from gateway.observe import Clocks
from telemetry.tracing import build_provider

GuestOpener = Callable[[], QuotingTee]


def system_clocks() -> Clocks:
    return Clocks(monotonic_ns=time.monotonic_ns, unix_ns=time.time_ns)


def utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)  # noqa: TID251 - the process edge


def new_request_id() -> str:
    return secrets.token_hex(12)


def configured_policy(config: StarshadeConfig) -> AppraisalPolicy:
    """Raises: attestation.errors.PolicyError."""
    is_shipped = config.policy in {"production", "development"}
    return load_policy(config.policy if is_shipped else Path(config.policy))


def mode_of(config: StarshadeConfig) -> Mode:
    """Where sealed requests of clients are opened."""
    return "pass-through" if config.gateway.mode == "pass-through" else "terminate"


def span_provider(
    config: StarshadeConfig, service: str, instance_id: str, exporter: SpanExporter | None
) -> TracerProvider:
    endpoint = config.telemetry.endpoint if config.telemetry.enabled else None
    return build_provider(service, endpoint=endpoint, instance_id=instance_id, exporter=exporter)


def own_drain_s(drain_s: int) -> float:
    """A little less than the server's own patience, so that the last events still go out."""
    return max(drain_s - 1.0, drain_s / 2)

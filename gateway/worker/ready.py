"""What have workers in common, whatever computes behind them?  A TEE, spans, what they offer."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Final

from opentelemetry.sdk.trace.export import SpanExporter

from attestation.evidence import QuotingTee
from attestation.policy import AppraisalPolicy
from gateway.config import StarshadeConfig
from gateway.observe import Tracing
from gateway.process import GuestOpener, span_provider, system_clocks
from gateway.worker.app import ReadyWorker, WorkerState
from gateway.worker.attester import Attester, open_tee
from gateway.worker.facts import worker_facts
from gateway.worker.inner import InnerService, Workload
from runtime import StepStats
from telemetry import semconv

_log = logging.getLogger(__name__)

_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


async def worker_tee(
    config: StarshadeConfig, policy: AppraisalPolicy, open_guest: GuestOpener
) -> QuotingTee:
    """In a thread. Raises: GatewayError `tee_unavailable`."""
    return await asyncio.to_thread(
        open_tee,
        config.worker.tee,
        allows_simulated=policy.allows_simulated,
        role="worker",
        open_guest=open_guest,
    )


def worker_tracing(config: StarshadeConfig, exporter: SpanExporter | None) -> Tracing:
    """Shut its provider down in the end."""
    provider = span_provider(config, semconv.SERVICE_WORKER, config.worker.id, exporter)
    return Tracing(provider=provider, clocks=system_clocks(), instance_id=config.worker.id)


def ready_worker(
    config: StarshadeConfig,
    policy: AppraisalPolicy,
    state: WorkerState,
    *,
    tee: QuotingTee,
    model_name: str,
    weights_sha256: str,
    service: InnerService,
    bridge: Workload,
    latest_step: Callable[[], StepStats | None] = lambda: None,
    utc_now: Callable[[], datetime],
    build: Mapping[str, str] = _NOTHING,
) -> ReadyWorker:
    """What `state.ready` becomes."""
    attester = Attester(
        tee=tee,
        facts=lambda: worker_facts(
            config,
            state.keys,
            policy=policy,
            weights_sha256=weights_sha256,
            receipt_key=state.receipt_key,
            build=build,
        ),
        utc_now=utc_now,
    )
    _log.info("worker ready", extra={"worker": config.worker.id, "model": model_name})
    return ReadyWorker(
        model_name=model_name,
        weights_sha256=weights_sha256,
        attester=attester,
        service=state.witnessed(service, weights_sha256=weights_sha256),
        bridge=bridge,
        latest_step=latest_step,
    )

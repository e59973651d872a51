"""How is a worker put together whose model another server in the same machine serves?"""

import asyncio
import logging
import os
import time
from collections.abc import AsyncGenerator

from opentelemetry.sdk.trace.export import SpanExporter

from attestation.policy import AppraisalPolicy
from gateway.config import StarshadeConfig
from gateway.observe import Tracing
from gateway.problems import GatewayError
from gateway.process import GuestOpener, span_provider, system_clocks, utc_now
from gateway.worker.app import ReadyWorker, WorkerState
from gateway.worker.attester import Attester, open_tee
from gateway.worker.facts import worker_facts
from gateway.worker.obfuscation import random_filler
from gateway.worker.upstream import UpstreamService, served_models, upstream_client
from telemetry import semconv

_log = logging.getLogger(__name__)


async def load_upstream(
    config: StarshadeConfig,
    policy: AppraisalPolicy,
    exporter: SpanExporter | None,
    open_guest: GuestOpener,
    state: WorkerState,
) -> AsyncGenerator[None, None]:
    """1. The TEE, in a thread. 2. The server, once it has a model. 3. Ready.

    Closing the generator closes the connections to the server and flushes the spans.
    """
    settings = config.worker
    weights_sha256 = settings.upstream_weights_sha256
    if settings.upstream is None or weights_sha256 is None:
        raise GatewayError("internal_error", "Who says which weights the upstream has?")
    tee = await asyncio.to_thread(  # 1
        open_tee,
        settings.tee,
        allows_simulated=policy.allows_simulated,
        role="worker",
        open_guest=open_guest,
    )
    provider = span_provider(config, semconv.SERVICE_WORKER, settings.id, exporter)
    clocks = system_clocks()
    tracing = Tracing(provider=provider, clocks=clocks, instance_id=settings.id)
    build = {"engine": f"upstream/{settings.upstream_kind}"}
    async with upstream_client(settings.upstream) as http:
        models = await served_models(http)  # 2
        service = UpstreamService(
            http,
            dialect=settings.upstream_kind,
            models=models,
            unix_s=time.time,  # noqa: TID251 - the process edge
            clock_ns=clocks.monotonic_ns,
            report=tracing.generated,
            filler=random_filler(os.urandom),
        )
        state.ready = ReadyWorker(  # 3
            model_name=models[0],
            weights_sha256=weights_sha256,
            attester=Attester(
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
            ),
            service=state.witnessed(service, weights_sha256=weights_sha256),
            bridge=service,
            latest_step=lambda: None,
        )
        _log.info("worker ready", extra={"worker": settings.id, "model": models[0]})
        try:
            yield
        finally:
            await asyncio.to_thread(provider.shutdown)

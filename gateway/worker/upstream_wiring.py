"""How is a worker put together whose model another server in the same machine serves?"""

import asyncio
import os
import time
from collections.abc import AsyncGenerator

from opentelemetry.sdk.trace.export import SpanExporter

from attestation.policy import AppraisalPolicy
from gateway.config import StarshadeConfig
from gateway.problems import GatewayError
from gateway.process import GuestOpener, utc_now
from gateway.worker.app import WorkerState
from gateway.worker.obfuscation import random_filler
from gateway.worker.ready import ready_worker, worker_tee, worker_tracing
from gateway.worker.upstream import UpstreamService, served_models, upstream_client


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
    tee = await worker_tee(config, policy, open_guest)  # 1
    tracing = worker_tracing(config, exporter)
    async with upstream_client(settings.upstream) as http:
        models = await served_models(http)  # 2
        service = UpstreamService(
            http,
            dialect=settings.upstream_kind,
            models=models,
            unix_s=time.time,  # noqa: TID251 - the process edge
            clock_ns=tracing.clocks.monotonic_ns,
            report=tracing.generated,
            filler=random_filler(os.urandom),
        )
        state.ready = ready_worker(  # 3
            config,
            policy,
            state,
            tee=tee,
            model_name=models[0],
            weights_sha256=weights_sha256,
            service=service,
            bridge=service,
            utc_now=utc_now,
            build={"engine": f"upstream/{settings.upstream_kind}"},
        )
        try:
            yield
        finally:
            await asyncio.to_thread(tracing.provider.shutdown)

"""/metrics and /admin: what is going on, and with which workers, for those who run the gateway?

Each asks for a scope of its own: names of tenants and how much they use are nobody else's business.
"""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from gateway.auth import Scope
from gateway.counts import MEDIA_TYPE, Metric, Sample, exposition
from gateway.problems import GatewayError
from gateway.quotas import TenantUse
from gateway.routes.evidence import node_entry
from gateway.services import Services, authenticated, services_of

_NO_STORE = {"cache-control": "no-store"}


async def metrics(request: Request) -> Response:
    (await authenticated(request)).require(Scope.METRICS)
    page = exposition(_metrics(services_of(request)))
    return Response(page, media_type=MEDIA_TYPE, headers=_NO_STORE)


async def tenants(request: Request) -> Response:
    """Those that have asked for something lately; what they may use and what of it is left."""
    (await authenticated(request)).require(Scope.ADMIN)
    data = [_entry(use) for use in services_of(request).quotas.use()]
    return JSONResponse({"object": "list", "data": data}, headers=_NO_STORE)


async def add_worker(request: Request) -> Response:
    """Its entry; it serves once it has attested."""
    (await authenticated(request)).require(Scope.ADMIN)
    services = services_of(request)
    node = services.registry.add(_address(request))
    return JSONResponse(node_entry(node, services.utc_now()), headers=_NO_STORE)


async def remove_worker(request: Request) -> Response:
    """Its streams may end, it gets no more."""
    (await authenticated(request)).require(Scope.ADMIN)
    await services_of(request).registry.remove(_address(request))
    return JSONResponse({"object": "node", "deleted": True}, headers=_NO_STORE)


def _address(request: Request) -> str:
    """Raises: GatewayError `missing_required_parameter`."""
    address = request.query_params.get("address", "")
    if not address:
        raise GatewayError("missing_required_parameter", "Name the address.", param="address")
    return address


def _metrics(services: Services) -> tuple[Metric, ...]:
    counts, now = services.counts, services.utc_now()
    ended = tuple(
        Sample(value=count, labels={"path": path, "code": code})
        for (path, code), count in sorted(counts.by_path_and_code().items())
    )
    tokens = (
        Sample(value=counts.prompt_tokens, labels={"type": "prompt"}),
        Sample(value=counts.output_tokens, labels={"type": "output"}),
    )
    nodes = services.directory.nodes
    serving = tuple(
        Sample(value=int(node.is_serving(now)), labels={"worker": node.id}) for node in nodes
    )
    loads = tuple(Sample(value=node.load.num_open, labels={"worker": node.id}) for node in nodes)
    num_open = (Sample(value=sum(use.num_open for use in services.quotas.use())),)
    estimated = (Sample(value=services.quotas.open_tokens),)
    return (
        Metric(
            name="starshade_requests_total",
            kind="counter",
            text="Requests that have ended, by path and error code.",
            samples=ended,
        ),
        Metric(
            name="starshade_tokens_total",
            kind="counter",
            text="Tokens of requests whose usage is known.",
            samples=tokens,
        ),
        Metric(
            name="starshade_open_requests",
            kind="gauge",
            text="Requests that tenants have open.",
            samples=num_open,
        ),
        Metric(
            name="starshade_open_tokens",
            kind="gauge",
            text="What all open requests are estimated at.",
            samples=estimated,
        ),
        Metric(
            name="starshade_worker_serving",
            kind="gauge",
            text="Whether the worker may be sealed to now.",
            samples=serving,
        ),
        Metric(
            name="starshade_worker_open_requests",
            kind="gauge",
            text="Requests that the worker has not finished.",
            samples=loads,
        ),
    )


def _entry(use: TenantUse) -> dict[str, Any]:
    return {
        "tenant": use.tenant,
        "open_requests": use.num_open,
        "max_open_requests": use.max_open,
        "requests_per_minute": use.requests_per_minute,
        "remaining_requests": use.remaining_requests,
        "tokens_per_minute": use.tokens_per_minute,
        "remaining_tokens": use.remaining_tokens,
    }

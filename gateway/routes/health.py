"""GET /healthz and /readyz: is the process alive, and may requests be sent to it?"""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from gateway.problems import problem_response
from gateway.services import require_not_draining, services_of


async def healthz(_request: Request) -> Response:
    return JSONResponse({"status": "alive"})


async def readyz(request: Request) -> Response:
    """200 only with a live lease on a reachable worker, and room for a receipt; else a problem that
    says why not.
    """
    services = services_of(request)
    require_not_draining(services)
    reason = services.directory.readiness()
    if reason is not None:
        return problem_response(reason)
    await services.receipts.require_room()
    leases = [node.machine.lease for node in services.directory.nodes]
    body = {
        "status": "ready",
        "simulated": any(lease.simulated for lease in leases if lease is not None),
        "models": await services.directory.models(),
    }
    return JSONResponse(body, headers={"cache-control": "no-store"})

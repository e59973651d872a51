"""GET /v1/receipts/{id}: what did the gateway sign about a request of this credential?"""

from starlette.requests import Request
from starlette.responses import Response

from gateway.services import authenticated, services_of


async def get_receipt(request: Request) -> Response:
    """Exactly the bytes that were signed and stored."""
    principal = await authenticated(request)
    body = await services_of(request).receipts.find(request.path_params["id"], principal)
    return Response(body, media_type="application/json", headers={"cache-control": "no-store"})

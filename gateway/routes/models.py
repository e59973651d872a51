"""GET /v1/models and /v1/models/{id}: what the verified workers serve."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from gateway.services import authenticated, services_of


async def list_models(request: Request) -> Response:
    await authenticated(request)
    names = await services_of(request).directory.models()
    return JSONResponse({"object": "list", "data": [_entry(name) for name in names]})


async def get_model(request: Request) -> Response:
    await authenticated(request)
    name = request.path_params["model"]
    directory = services_of(request).directory
    if name not in await directory.models():
        await directory.node_for(name)  # which says why
    return JSONResponse(_entry(name))


def _entry(name: str) -> dict[str, Any]:
    # OpenAI's shape wants a time; a model file here has none that means anything
    return {"id": name, "object": "model", "created": 0, "owned_by": "starshade"}

"""GET /openapi.json: how is this API to be used?"""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from gateway.openapi import openapi_document

MAX_AGE_S = 300


async def openapi(_request: Request) -> Response:
    headers = {"cache-control": f"max-age={MAX_AGE_S}"}
    return JSONResponse(openapi_document(), headers=headers)

"""How does the observatory say no?  problem+json with a stable code.  [RFC 9457]"""

from http import HTTPStatus

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

_CODES = {404: "not_found", 405: "method_not_allowed"}


def problem(status: int, code: str, detail: str | None = None) -> JSONResponse:
    """One problem; ``detail`` must not quote what was sent."""
    body: dict[str, object] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "code": code,
    }
    if detail is not None:
        body["detail"] = detail
    return JSONResponse(body, status_code=status, media_type="application/problem+json")


def on_http_error(_request: Request, error: Exception) -> JSONResponse:
    """Problem of an HTTPException that a route or the router raised."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    answer = problem(status, _CODES.get(status, "internal_error"))
    if isinstance(error, HTTPException) and error.headers:
        answer.headers.update(error.headers)
    return answer


def on_invalid_query(_request: Request, error: Exception) -> JSONResponse:
    """Problem of query parameters that do not parse; names them, never their values."""
    names: set[str] = set()
    if isinstance(error, RequestValidationError):
        names = {str(item["loc"][-1]) for item in error.errors()}
    return problem(400, "invalid_value", f"invalid: {', '.join(sorted(names))}")

"""What does a failure look like on the wire?  One table from error code to status and body.

``/v1/*`` answers in OpenAI's shape, everything else in ``application/problem+json``
[RFC 9457]; both carry the same ``code``, which is also the span's ``error.type``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final

from starlette.responses import JSONResponse, Response
from starlette.types import Scope

PROBLEM_MEDIA_TYPE: Final = "application/problem+json"
REFUSAL: Final = "starshade.refusal"  # in an ASGI scope: the GatewayError that was answered
RECEIPT_ID: Final = "starshade.receipt_id"  # in an ASGI scope: of the receipt that will be signed
_OHTTP_KEY: Final = "https://iana.org/assignments/http-problem-types#ohttp-key"
EHBP_KEY: Final = "urn:ietf:params:ehbp:error:key-config"
_KEY_TITLE: Final = "key configuration mismatch"
_DATE: Final = "https://iana.org/assignments/http-problem-types#date"

TOO_LONG: Final = (
    "The request took longer than gateway.request_deadline_s allows: set max_tokens, or stream to "
    "have what is ready by then."
)

_INVALID_REQUEST: Final = "invalid_request_error"
_AUTHENTICATION: Final = "authentication_error"
_PERMISSION: Final = "permission_error"
_RATE_LIMIT: Final = "rate_limit_error"
_SERVER: Final = "server_error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """How one error code is answered."""

    status: int
    error_type: str = _INVALID_REQUEST  # OpenAI's `error.type`
    retry_after_s: int | None = None
    problem_type: str = "about:blank"  # RFC 9457 `type`


_TABLE: Final[Mapping[str, Problem]] = MappingProxyType(
    {
        # the client's request
        "malformed_http": Problem(status=400),
        "invalid_json": Problem(status=400),
        "invalid_type": Problem(status=400),
        "invalid_value": Problem(status=400),
        "missing_required_parameter": Problem(status=400),
        "unsupported_parameter": Problem(status=400),
        "context_length_exceeded": Problem(status=400),
        "model_not_capable": Problem(status=400),
        "invalid_grammar": Problem(status=400),
        "nonce_length": Problem(status=400),
        "invalid_api_key": Problem(status=401, error_type=_AUTHENTICATION),
        "api_key_expired": Problem(status=401, error_type=_AUTHENTICATION),
        "insufficient_scope": Problem(status=403, error_type=_PERMISSION),
        "model_not_found": Problem(status=404),
        "node_not_found": Problem(status=404),
        "receipt_not_found": Problem(status=404),
        "not_found": Problem(status=404),
        "unsupported_endpoint": Problem(status=404),
        "method_not_allowed": Problem(status=405),
        "request_timeout": Problem(status=408, error_type=_SERVER),
        "session_not_accepted": Problem(status=412),
        "body_too_large": Problem(status=413),
        "unsupported_media_type": Problem(status=415),
        "origin_not_allowed": Problem(status=403, error_type=_PERMISSION),
        "unknown_host": Problem(status=421),
        "grammar_failed": Problem(status=422),
        "rate_limit_exceeded": Problem(status=429, error_type=_RATE_LIMIT),
        # the sealed channel (protocol: outer statuses)
        "key_config_error": Problem(status=400, problem_type=_OHTTP_KEY),
        "decrypt_failed": Problem(status=400),
        "malformed_inner": Problem(status=400),
        "date_outside_window": Problem(status=400, problem_type=_DATE),
        "duplicate_request_id": Problem(status=409),
        "replay_detected": Problem(status=409),
        "too_many_chunks": Problem(status=413),
        # this side
        "client_disconnected": Problem(status=499, error_type=_SERVER),
        "internal_error": Problem(status=500, error_type=_SERVER),
        "generation_failed": Problem(status=500, error_type=_SERVER),
        "slow_reader": Problem(status=500, error_type=_SERVER),
        "upstream_error": Problem(status=502, error_type=_SERVER),
        "upstream_truncated": Problem(status=502, error_type=_SERVER),
        "receipt_unavailable": Problem(status=503, error_type=_SERVER, retry_after_s=1),
        "overloaded": Problem(status=503, error_type=_SERVER, retry_after_s=1),
        "server_stopping": Problem(status=503, error_type=_SERVER, retry_after_s=5),
        "upstream_unavailable": Problem(status=503, error_type=_SERVER, retry_after_s=2),
        "upstream_verification_failed": Problem(status=503, error_type=_SERVER, retry_after_s=10),
        "tee_unavailable": Problem(status=503, error_type=_SERVER),
        "worker_not_ready": Problem(status=503, error_type=_SERVER, retry_after_s=1),
    }
)


class GatewayError(Exception):
    """One failure with a stable code.

    The message is shown to clients and operators, so it never holds prompts, keys or Evidence.
    ``detail_code`` is the closed-vocabulary cause behind the code (an attestation error class).
    ``hidden_code`` is the same where the client must not learn it: for the audit log alone.
    ``headers`` go with the response, in lower case; they outrank those of the code.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        param: str | None = None,
        detail_code: str | None = None,
        hidden_code: str | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
        self.detail_code = detail_code
        self.hidden_code = hidden_code
        self.headers = headers

    @property
    def precise_code(self) -> str | None:
        """The cause behind the code, if there is one that says more."""
        return self.detail_code or self.hidden_code

    @property
    def status(self) -> int:
        return problem_of(self.code).status


def problem_of(code: str) -> Problem:
    """The table's entry; an unknown code is this side's fault, so it reads as internal."""
    return _TABLE.get(code, _TABLE["internal_error"])


def is_known_code(code: str) -> bool:
    return code in _TABLE


def known_codes() -> tuple[str, ...]:
    return tuple(_TABLE)


def openai_body(error: GatewayError, *, receipt_id: str | None = None) -> dict[str, Any]:
    """OpenAI's error object, whole body; with the id of its receipt where there is one."""
    body = {
        "message": error.message,
        "type": problem_of(error.code).error_type,
        "param": error.param,
        "code": error.code,
    }
    return {"error": body if receipt_id is None else {**body, "receipt": receipt_id}}


def problem_body(error: GatewayError) -> dict[str, Any]:
    """RFC 9457 problem details with a ``code`` member, and its cause where there is one."""
    problem = problem_of(error.code)
    phrase = HTTPStatus(problem.status).phrase if problem.status != 499 else "Client Closed Request"
    body = {
        "type": problem.problem_type,
        "title": phrase,
        "status": problem.status,
        "detail": error.message,
        "code": error.code,
    }
    return body if error.detail_code is None else {**body, "detail_code": error.detail_code}


def openai_response(error: GatewayError, *, receipt_id: str | None = None) -> Response:
    body = openai_body(error, receipt_id=receipt_id)
    return JSONResponse(body, status_code=error.status, headers=_headers(error))


def problem_response(error: GatewayError) -> Response:
    return JSONResponse(
        problem_body(error),
        status_code=error.status,
        headers=_headers(error),
        media_type=PROBLEM_MEDIA_TYPE,
    )


def key_config_response(
    scope: Scope, error: GatewayError, *, problem_type: str = _OHTTP_KEY
) -> Response:
    """`key_config_error` with status 422, by which some clients know to fetch the key anew."""
    scope[REFUSAL] = error
    body = {**problem_body(error), "type": problem_type, "status": 422, "title": _KEY_TITLE}
    return JSONResponse(
        body, status_code=422, headers=_headers(error), media_type=PROBLEM_MEDIA_TYPE
    )


def response_for(scope: Scope, error: GatewayError) -> Response:
    """The body shape that this path's clients understand.

    What was refused and why stays in ``scope``, for who records it; the receipt's id comes from it.
    """
    path: str = scope["path"]
    scope[REFUSAL] = error
    is_openai = path == "/v1" or path.startswith("/v1/")
    if not is_openai:
        return problem_response(error)
    return openai_response(error, receipt_id=scope.get(RECEIPT_ID))


def _headers(error: GatewayError) -> dict[str, str]:
    headers = {"cache-control": "no-store"}
    problem = problem_of(error.code)
    if problem.retry_after_s is not None:
        headers["retry-after"] = str(problem.retry_after_s)
    if problem.status == 401:
        headers["www-authenticate"] = "Bearer"
    return {**headers, **error.headers}

"""What is told to who sends something that is no HTTP, which no app ever sees?

The same bodies as for any other refusal: OpenAI's shape where the request line names an endpoint of
that API, `application/problem+json` otherwise.
"""

from typing import Final
from urllib.parse import unquote

import h11
from starlette.types import Scope

from gateway.problems import GatewayError, response_for

OPENING_BYTES: Final = 512  # of a head, looked at to learn whose clients it may come from
_MESSAGE: Final = "The request is not valid HTTP, or its head is too large."
_STATES_BEFORE_ANSWER: Final = (h11.IDLE, h11.SEND_RESPONSE)


def path_of(opening: bytes) -> str:
    """Where the request went whose first bytes these are; "" where they do not say it."""
    method, _, rest = opening.partition(b"\r\n")[0].partition(b" ")
    target = rest.partition(b" ")[0].partition(b"?")[0].decode("latin-1")
    return unquote(target) if method.isalpha() and target.startswith("/") else ""


def malformed_answer(
    conn: h11.Connection, opening: bytes, default_headers: list[tuple[bytes, bytes]]
) -> bytes | None:
    """The whole answer; None where another one has begun, so that there is nothing to say."""
    if conn.our_state not in _STATES_BEFORE_ANSWER:
        return None
    scope: Scope = {"path": path_of(opening)}
    response = response_for(scope, GatewayError("malformed_http", _MESSAGE))
    content = b"" if opening.startswith(b"HEAD ") else bytes(response.body)
    headers = [
        *(field for field in default_headers if field[0].lower() != b"connection"),
        *(field for field in response.raw_headers if field[0] != b"content-length"),
        (b"content-length", str(len(content)).encode()),
        (b"connection", b"close"),
    ]
    events = (
        h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
        h11.Data(data=content),
        h11.EndOfMessage(),
    )
    return b"".join(conn.send(event) or b"" for event in events)

"""What does Schemathesis have to be told?  A model that is served, and how sealed bodies are sent.

Loaded by the tool itself, in its own process [tests/gateway/test_openapi.py].
"""

import os
from typing import Any

import schemathesis

MODEL = os.environ["STARSHADE_TEST_MODEL"]  # noqa: TID251 - a process of its own
LIMITS = {
    "/v1/chat/completions": "max_tokens",
    "/v1/completions": "max_tokens",
    "/v1/responses": "max_output_tokens",
}
SEALED = ("message/ohttp-req", "message/ohttp-chunked-req")


@schemathesis.serializer(*SEALED)
def sealed(_context: Any, value: Any) -> bytes:
    """Whatever was made up, as bytes: none of it opens."""
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    """A name that is valid becomes one that is known, so that more than its refusal is seen; and
    answers that are as long as they like become short.
    """
    if not isinstance(body, dict) or not isinstance(model := body.get("model"), str):
        return body
    if not 1 <= len(model) <= 128:
        return body
    limit = LIMITS.get(context.operation.path)
    is_free = limit is not None and body.get(limit) is None
    return {**body, "model": MODEL} | ({limit: 2} if is_free else {})

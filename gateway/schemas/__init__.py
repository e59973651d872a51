"""The wire models of OpenAI's API: parsed strictly, once, at the boundary.

Every parameter is either honoured, listed in ``IGNORED_PARAMETERS``, or refused with
``unsupported_parameter``; nothing is silently dropped. A value that asks for the default behaviour
is accepted because honouring it needs nothing.
"""

from gateway.schemas.chat import (
    ChatRequest,
    inner_body,
    parse_chat_request,
    validate_chat_request,
)

__all__ = ["ChatRequest", "inner_body", "parse_chat_request", "validate_chat_request"]

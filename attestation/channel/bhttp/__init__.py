"""Binary HTTP: which request or response do the opened bytes say?  [RFC 9292]

Known-length and indeterminate-length framing, in and out. ``parse_*`` take a whole message,
``RequestParser`` and ``ResponseParser`` take bytes as they arrive.
"""

from attestation.channel.bhttp.message import (
    BhttpLimits,
    Fields,
    Request,
    RequestHead,
    Response,
    ResponseHead,
    http_date,
    serialize_content_chunk,
    serialize_end,
    serialize_request,
    serialize_request_head,
    serialize_response,
    serialize_response_head,
    without_connection_fields,
)
from attestation.channel.bhttp.parser import (
    RequestParser,
    ResponseParser,
    parse_request,
    parse_response,
)

__all__ = [
    "BhttpLimits",
    "Fields",
    "Request",
    "RequestHead",
    "RequestParser",
    "Response",
    "ResponseHead",
    "ResponseParser",
    "http_date",
    "parse_request",
    "parse_response",
    "serialize_content_chunk",
    "serialize_end",
    "serialize_request",
    "serialize_request_head",
    "serialize_response",
    "serialize_response_head",
    "without_connection_fields",
]

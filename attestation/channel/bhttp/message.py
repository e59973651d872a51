"""Binary HTTP messages: what may they hold, and how are they written?  [RFC 9292]

Nothing that HTTP forbids can be built, so nothing that HTTP forbids can be written or parsed:
connection fields and CONNECT are refused, a path begins with ``/`` (or is ``*``), field names are
lowercase, field values are text with one character per byte.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from attestation.channel.errors import MalformedInner, RefusedTarget
from attestation.channel.varint import encode_varint

MAX_HEAD_BYTES = 1 << 16  # control data and fields of one message, trailers and interim included
MAX_FIELDS = 256
MAX_INFORMATIONAL = 16
MAX_CONTENT_BYTES = 1 << 30

FRAMING_KNOWN_REQUEST = 0
FRAMING_KNOWN_RESPONSE = 1
FRAMING_INDETERMINATE_REQUEST = 2
FRAMING_INDETERMINATE_RESPONSE = 3

Fields = tuple[tuple[str, str], ...]
"""(lowercase name, value) in order; values are latin-1 text."""

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_FIELD_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9a-z]+")
_FIELD_VALUE = re.compile(
    r"(?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?"
)
_SCHEME = re.compile(r"[a-z][a-z0-9+\-.]*")
_AUTHORITY = re.compile(r"[!-?A-~]*")  # visible ASCII without @: no user information
_PATH = re.compile(r"\*|/[!-~]*")
_CONNECTION_FIELDS = frozenset(
    {"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BhttpLimits:
    """What a parsed message may hold; a caller can tighten the limits, never widen them.

    Raises: ValueError for a limit below zero or over its constant.
    """

    max_head_bytes: int = MAX_HEAD_BYTES
    max_fields: int = MAX_FIELDS
    max_informational: int = MAX_INFORMATIONAL
    max_content_bytes: int = MAX_CONTENT_BYTES

    def __post_init__(self) -> None:
        for name, value, most in (
            ("max_head_bytes", self.max_head_bytes, MAX_HEAD_BYTES),
            ("max_fields", self.max_fields, MAX_FIELDS),
            ("max_informational", self.max_informational, MAX_INFORMATIONAL),
            ("max_content_bytes", self.max_content_bytes, MAX_CONTENT_BYTES),
        ):
            if not 0 <= value <= most:
                raise ValueError(f"{name}: want 0..{most}, got {value}")


DEFAULT_LIMITS = BhttpLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHead:
    """Control data and header of a request; the repr leaves out the header's values.

    Raises: RefusedTarget for CONNECT; MalformedInner for anything no HTTP message may hold.
    """

    method: str
    scheme: str = "https"
    authority: str = ""
    path: str
    fields: Fields = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if self.method == "CONNECT":
            raise RefusedTarget("binary HTTP: CONNECT is refused")
        _require(_TOKEN, self.method, "method")
        _require(_SCHEME, self.scheme, "scheme")
        _require(_AUTHORITY, self.authority, "authority")
        _require(_PATH, self.path, "path")
        _require_fields(self.fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(RequestHead):
    """A whole request; the repr leaves out the content."""

    content: bytes = field(default=b"", repr=False)
    trailers: Fields = field(default=(), repr=False)

    def __post_init__(self) -> None:
        RequestHead.__post_init__(self)
        _require_fields(self.trailers)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseHead:
    """Status, final or informational, and header; the repr leaves out the header's values.

    Raises: MalformedInner for a status outside 100..599 or a bad field.
    """

    status: int
    fields: Fields = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if not 100 <= self.status <= 599:
            raise MalformedInner(f"binary HTTP: status: want 100..599, got {self.status}")
        _require_fields(self.fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Response(ResponseHead):
    """A whole response with its final status; the repr leaves out the content."""

    content: bytes = field(default=b"", repr=False)
    trailers: Fields = field(default=(), repr=False)
    informational: tuple[ResponseHead, ...] = ()

    def __post_init__(self) -> None:
        ResponseHead.__post_init__(self)
        _require_fields(self.trailers)
        _require_order(self.informational, self)


def serialize_request(request: Request, *, padding_bytes: int = 0) -> bytes:
    """The known-length form, then ``padding_bytes`` zeros."""
    return b"".join(
        (
            encode_varint(FRAMING_KNOWN_REQUEST),
            _control_data(request),
            _known_fields(request.fields),
            _sized(request.content),
            _known_fields(request.trailers),
            bytes(padding_bytes),
        )
    )


def serialize_response(response: Response, *, padding_bytes: int = 0) -> bytes:
    """The known-length form, then ``padding_bytes`` zeros."""
    heads = (*response.informational, response)
    return b"".join(
        (
            encode_varint(FRAMING_KNOWN_RESPONSE),
            *(encode_varint(head.status) + _known_fields(head.fields) for head in heads),
            _sized(response.content),
            _known_fields(response.trailers),
            bytes(padding_bytes),
        )
    )


def serialize_request_head(head: RequestHead) -> bytes:
    """The start of an indeterminate-length request."""
    framing = encode_varint(FRAMING_INDETERMINATE_REQUEST)
    return framing + _control_data(head) + _open_ended_fields(head.fields)


def serialize_response_head(
    head: ResponseHead, *, informational: tuple[ResponseHead, ...] = ()
) -> bytes:
    """The start of an indeterminate-length response.

    Raises: MalformedInner when ``head`` is informational, or one of ``informational`` is not.
    """
    _require_order(informational, head)
    heads = (*informational, head)
    return encode_varint(FRAMING_INDETERMINATE_RESPONSE) + b"".join(
        encode_varint(each.status) + _open_ended_fields(each.fields) for each in heads
    )


def serialize_content_chunk(data: bytes) -> bytes:
    """A piece of indeterminate-length content; no bytes for none, since zero ends the content."""
    return _sized(data) if data else b""


def serialize_end(trailers: Fields = ()) -> bytes:
    """The end of the content and of an indeterminate-length message."""
    _require_fields(trailers)
    return b"\x00" + _open_ended_fields(trailers)


def require_field(name: str, value: str) -> None:
    """Raises: MalformedInner for a field that no message may hold."""
    if _FIELD_NAME.fullmatch(name) is None:
        raise MalformedInner("binary HTTP: a field name is a lowercase token")
    if _FIELD_VALUE.fullmatch(value) is None:
        raise MalformedInner(f"binary HTTP: the value of {name} has a forbidden character")
    if is_connection_field(name, value):
        raise MalformedInner(f"binary HTTP: {name} is a field of a connection")


def is_connection_field(name: str, value: str) -> bool:
    """Whether the field is about one connection, and means nothing in what outlives it."""
    return name in _CONNECTION_FIELDS or (name == "te" and value != "trailers")


def without_connection_fields(fields: Iterable[tuple[str, str]]) -> Fields:
    """What outlives the connection; names are in lower case.

    A field that Connection names goes with it  [RFC 9110 sec. 7.6.1].
    """
    fields = tuple(fields)
    listed = ",".join(value for name, value in fields if name == "connection")
    named = {name.strip().lower() for name in listed.split(",")}
    return tuple(
        (name, value)
        for name, value in fields
        if name not in named and not is_connection_field(name, value)
    )


def _require_order(informational: Iterable[ResponseHead], final: ResponseHead) -> None:
    if final.status < 200 or any(head.status >= 200 for head in informational):
        raise MalformedInner("binary HTTP: 1xx statuses come before the one final status")


def _require_fields(fields: Iterable[tuple[str, str]]) -> None:
    for name, value in fields:
        require_field(name, value)


def _require(pattern: re.Pattern[str], value: str, what: str) -> None:
    if pattern.fullmatch(value) is None:
        raise MalformedInner(f"binary HTTP: the {what} has a forbidden character or is empty")


def _sized(data: bytes) -> bytes:
    return encode_varint(len(data)) + data


def _text(value: str) -> bytes:
    return _sized(value.encode("latin-1"))


def _control_data(head: RequestHead) -> bytes:
    return _text(head.method) + _text(head.scheme) + _text(head.authority) + _text(head.path)


def _field_lines(fields: Fields) -> bytes:
    return b"".join(_text(name) + _text(value) for name, value in fields)


def _known_fields(fields: Fields) -> bytes:
    return _sized(_field_lines(fields))


def _open_ended_fields(fields: Fields) -> bytes:
    return _field_lines(fields) + b"\x00"


def http_date(at: datetime) -> str:
    """IMF-fixdate [RFC 9110 sec. 5.6.7]; ``at`` is in UTC."""
    return at.strftime("%a, %d %b %Y %H:%M:%S GMT")

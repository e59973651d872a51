"""Binary HTTP, incrementally: which request or response has arrived so far?  [RFC 9292]"""

from collections.abc import Generator

from attestation.channel.bhttp.grammar import MessageParser
from attestation.channel.bhttp.message import (
    DEFAULT_LIMITS,
    FRAMING_INDETERMINATE_REQUEST,
    FRAMING_INDETERMINATE_RESPONSE,
    FRAMING_KNOWN_REQUEST,
    FRAMING_KNOWN_RESPONSE,
    BhttpLimits,
    Request,
    RequestHead,
    Response,
    ResponseHead,
)
from attestation.channel.errors import MalformedInner


class RequestParser(MessageParser[RequestHead]):
    """Parses one request; ``head`` is None until its header has arrived."""

    def _message(self) -> Generator[None, None, None]:
        framing = yield from self._varint()
        if framing not in (FRAMING_KNOWN_REQUEST, FRAMING_INDETERMINATE_REQUEST):
            raise MalformedInner("binary HTTP: the framing is not a request's")
        is_known = framing == FRAMING_KNOWN_REQUEST
        method = yield from self._sized_text()
        scheme = yield from self._sized_text()
        authority = yield from self._sized_text()
        path = yield from self._sized_text()
        fields = yield from self._fields(is_known=is_known)
        self.head = RequestHead(
            method=method, scheme=scheme, authority=authority, path=path, fields=fields
        )
        yield from self._body(is_known=is_known)


class ResponseParser(MessageParser[ResponseHead]):
    """Parses one response; ``head`` is None until the final status and header have arrived."""

    def __init__(self, *, limits: BhttpLimits = DEFAULT_LIMITS) -> None:
        super().__init__(limits=limits)
        self.informational: tuple[ResponseHead, ...] = ()

    def _message(self) -> Generator[None, None, None]:
        framing = yield from self._varint()
        if framing not in (FRAMING_KNOWN_RESPONSE, FRAMING_INDETERMINATE_RESPONSE):
            raise MalformedInner("binary HTTP: the framing is not a response's")
        is_known = framing == FRAMING_KNOWN_RESPONSE
        while (head := (yield from self._status_and_fields(is_known))).status < 200:
            self.informational += (head,)
            if len(self.informational) > self._limits.max_informational:
                raise MalformedInner("binary HTTP: too many informational responses")
        self.head = head
        yield from self._body(is_known=is_known)

    def _status_and_fields(self, is_known: bool) -> Generator[None, None, ResponseHead]:
        status = yield from self._head_varint()
        ResponseHead(status=status)  # refuse a bad status before waiting for its fields
        return ResponseHead(status=status, fields=(yield from self._fields(is_known=is_known)))


def parse_request(
    data: bytes,
    *,
    limits: BhttpLimits = DEFAULT_LIMITS,
    drops_connection_fields: bool = False,
) -> Request:
    """A whole request of either framing.

    A field about a connection makes it malformed  [RFC 9292 sec. 3.6], or is dropped where asked
    for: published clients send what their HTTP library adds.

    Raises: MalformedInner, TruncatedInner, RefusedTarget, BodyTooLarge.
    """
    parser = RequestParser(limits=limits, drops_connection_fields=drops_connection_fields)
    content = b"".join(parser.feed(data))
    parser.finish()
    head = parser.require_head()
    return Request(
        method=head.method,
        scheme=head.scheme,
        authority=head.authority,
        path=head.path,
        fields=head.fields,
        content=content,
        trailers=parser.trailers,
    )


def parse_response(data: bytes, *, limits: BhttpLimits = DEFAULT_LIMITS) -> Response:
    """A whole response of either framing.

    Raises: MalformedInner, TruncatedInner, BodyTooLarge.
    """
    parser = ResponseParser(limits=limits)
    content = b"".join(parser.feed(data))
    parser.finish()
    head = parser.require_head()
    return Response(
        status=head.status,
        fields=head.fields,
        content=content,
        trailers=parser.trailers,
        informational=parser.informational,
    )

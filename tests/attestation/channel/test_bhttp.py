"""Binary HTTP: the RFC's examples, round trips, limits and what is refused."""

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attestation.channel.bhttp import (
    BhttpLimits,
    Fields,
    Request,
    RequestHead,
    RequestParser,
    Response,
    ResponseHead,
    ResponseParser,
    parse_request,
    parse_response,
    serialize_content_chunk,
    serialize_end,
    serialize_request,
    serialize_request_head,
    serialize_response,
    serialize_response_head,
    without_connection_fields,
)
from attestation.channel.errors import (
    BodyTooLarge,
    ChannelError,
    ChannelMisuse,
    MalformedInner,
    RefusedTarget,
    TruncatedInner,
)
from attestation.channel.varint import encode_varint
from tests.support.resources import vectors_dir

names = st.from_regex(r"[a-z][a-z0-9\-]{0,12}", fullmatch=True).filter(
    lambda name: name not in ("connection", "keep-alive", "upgrade", "te")
)
values = st.from_regex(r"(?:[!-~\x80-\xff](?:[ -~]{0,12}[!-~])?)?", fullmatch=True)
fields = st.lists(st.tuples(names, values), max_size=4).map(tuple)
heads = st.builds(
    RequestHead,
    method=st.sampled_from(["GET", "POST", "OPTIONS", "M-SEARCH"]),
    scheme=st.sampled_from(["https", "http"]),
    authority=st.sampled_from(["", "gateway.example:8443", "[::1]"]),
    path=st.sampled_from(["/", "/v1/chat/completions?x=%20", "*"]),
    fields=fields,
)
interim = st.lists(
    st.builds(ResponseHead, status=st.integers(100, 199), fields=fields), max_size=2
).map(tuple)


@settings(deadline=None)
@given(heads, st.binary(max_size=300), fields, st.integers(0, 5))
def test_parse_undoes_serialize_for_requests(
    head: RequestHead, content: bytes, trailers: Fields, padding_bytes: int
) -> None:
    request = Request(
        method=head.method,
        scheme=head.scheme,
        authority=head.authority,
        path=head.path,
        fields=head.fields,
        content=content,
        trailers=trailers,
    )
    data = serialize_request(request, padding_bytes=padding_bytes)
    assert parse_request(data) == request
    streamed = serialize_request_head(request) + serialize_content_chunk(content)
    assert parse_request(streamed + serialize_end(trailers)) == request


@settings(deadline=None)
@given(st.integers(200, 599), fields, interim, st.lists(st.binary(max_size=99)), st.data())
def test_any_split_of_a_streamed_response_gives_the_same(
    status: int,
    header: Fields,
    informational: tuple[ResponseHead, ...],
    contents: list[bytes],
    data: st.DataObject,
) -> None:
    head = ResponseHead(status=status, fields=header)
    message = serialize_response_head(head, informational=informational)
    message += b"".join(map(serialize_content_chunk, contents)) + serialize_end((("a", "b"),))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(message)), max_size=9)))
    parser, content = ResponseParser(), b""
    for start, end in zip([0, *cuts], [*cuts, len(message)], strict=True):
        content += b"".join(parser.feed(message[start:end]))
    parser.finish()
    assert (parser.head, parser.informational) == (head, informational)
    assert (content, parser.trailers) == (b"".join(contents), (("a", "b"),))
    whole = Response(
        status=status,
        fields=header,
        content=content,
        trailers=(("a", "b"),),
        informational=informational,
    )
    assert parse_response(message) == parse_response(serialize_response(whole)) == whole


def test_content_is_given_as_it_arrives() -> None:
    parser = ResponseParser()
    assert parser.feed(serialize_response_head(ResponseHead(status=200))) == []
    assert parser.head == ResponseHead(status=200)
    chunk = serialize_content_chunk(b"data: one\n\n")
    assert parser.feed(chunk) == [b"data: one\n\n"]
    assert parser.feed(chunk[:5]) == [b"data"]
    assert parser.feed(chunk[5:] + chunk) == [b": one\n\n", b"data: one\n\n"]
    assert parser.feed(serialize_end()) == []
    parser.finish()


def test_published_messages() -> None:
    vectors = json.loads((vectors_dir() / "protocol" / "bhttp.json").read_text())["vectors"]
    for vector in vectors:
        message = bytes.fromhex(vector["message"])
        if vector["expect"] == "accept":
            check_accepted(vector, message)
        else:
            expected = TruncatedInner if vector["expect"] == "truncated" else MalformedInner
            with pytest.raises(expected):
                parse_response(message) if message[0] in (1, 3) else parse_request(message)


def check_accepted(vector: dict[str, Any], message: bytes) -> None:
    parsed: Request | Response
    if vector["kind"] == "request":
        request = parsed = parse_request(message)
        for name in ("method", "scheme", "authority", "path"):
            assert getattr(request, name) == vector.get(name, getattr(request, name))
    else:
        response = parsed = parse_response(message)
        assert response.status == vector["status"]
        statuses = [head.status for head in response.informational]
        assert statuses == vector.get("informational", [])
    if "fields" in vector:
        assert [list(field) for field in parsed.fields] == vector["fields"]
    assert parsed.content.hex() == vector.get("content", "")
    assert [list(field) for field in parsed.trailers] == vector.get("trailers", [])


KNOWN = serialize_request(
    Request(method="POST", path="/x", fields=(("a", "b"),), content=b"c", trailers=(("d", "e"),))
)
STREAMED = (
    serialize_response_head(ResponseHead(status=200, fields=(("a", "b"),)))
    + serialize_content_chunk(b"one")
    + serialize_content_chunk(b"two")
    + serialize_end((("d", "e"),))
)


def test_a_known_length_message_ends_only_where_the_rest_is_empty() -> None:
    # Control data is 16 bytes, then 5 of header, 2 of content and 5 of trailer.
    assert len(KNOWN) == 28
    for length in range(len(KNOWN)):
        if length in (16, 21, 23):
            parse_request(KNOWN[:length])
        else:
            with pytest.raises(TruncatedInner):
                parse_request(KNOWN[:length])


def test_a_streamed_message_ends_only_where_the_rest_is_empty() -> None:
    # Framing and status are 3 bytes, the header 5, the content 4 + 4 + 1, the trailer 5.
    assert len(STREAMED) == 22
    for length in range(len(STREAMED)):
        if length in (3, 8, 17):
            parse_response(STREAMED[:length])
        else:
            with pytest.raises(TruncatedInner):
                parse_response(STREAMED[:length])


def test_padding_is_zeros() -> None:
    assert parse_request(KNOWN + bytes(5000)) == parse_request(KNOWN)
    for bad in (KNOWN + b"\x00\x01", STREAMED + b"\x01"):
        with pytest.raises(MalformedInner):
            (parse_request if bad[0] == 0 else parse_response)(bad)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("", "x"),
        ("Upper", "x"),
        (":path", "/x"),
        ("a b", "x"),
        ("a", "x\r\ny: z"),
        ("a", "\x00"),
        ("a", " x"),
        ("a", "x\t"),
        ("a", "\u20ac"),
        ("connection", "close"),
        ("transfer-encoding", "chunked"),
        ("te", "gzip"),
    ],
)
def test_bad_fields_can_neither_be_built_nor_parsed(name: str, value: str) -> None:
    with pytest.raises(MalformedInner):
        RequestHead(method="GET", path="/", fields=((name, value),))
    with pytest.raises(MalformedInner):
        serialize_end(((name, value),))
    if name and value.isascii():
        line = b"".join(bytes([len(text)]) + text.encode() for text in (name, value))
        with pytest.raises(MalformedInner):
            parse_request(b"\x02\x03GET\x05https\x00\x01/" + line + b"\x00")


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ("method", "G T"),
        ("method", ""),
        ("scheme", "HTTPS"),
        ("authority", "user@host"),
        ("authority", "host\n"),
        ("path", "v1"),
        ("path", "/a b"),
        ("path", "/\r"),
        ("path", "https://example.com/"),
    ],
)
def test_bad_control_data(change: str, value: str) -> None:
    good = {"method": "GET", "scheme": "https", "authority": "host", "path": "/"}
    with pytest.raises(MalformedInner):
        RequestHead(**{**good, change: value})  # type: ignore[arg-type]


def test_connect_is_refused_by_its_own_code() -> None:
    with pytest.raises(RefusedTarget) as caught:
        parse_request(b"\x00\x07CONNECT\x00\x0bexample:443\x00")
    assert caught.value.code == "refuse_target"


@pytest.mark.parametrize("status", [0, 99, 600, 1000])
def test_bad_statuses(status: int) -> None:
    with pytest.raises(MalformedInner):
        ResponseHead(status=status)
    with pytest.raises(MalformedInner):
        ResponseParser().feed(b"\x03" + encode_varint(status))


def test_informational_statuses_come_first() -> None:
    with pytest.raises(MalformedInner):
        Response(status=100)
    with pytest.raises(MalformedInner):
        serialize_response_head(ResponseHead(status=200), informational=(ResponseHead(status=200),))


def test_a_field_ends_within_its_section() -> None:
    with pytest.raises(MalformedInner):
        parse_response(b"\x01\x40\xc8\x03\x01a\x01b")


def test_a_bad_trailer_is_refused_as_it_arrives() -> None:
    parser = ResponseParser()
    with pytest.raises(MalformedInner):
        parser.feed(b"\x03\x40\xc8\x00\x00\x01A\x01b")


def test_framings_are_not_mixed() -> None:
    for message in (KNOWN, STREAMED, b"\x04", b"\x40\x05"):
        parse = parse_response if message[0] == 0 else parse_request
        with pytest.raises(MalformedInner):
            parse(message)


def test_limits() -> None:
    for limits, data, error in (
        (BhttpLimits(max_head_bytes=20), STREAMED[:3] + b"\x15" + bytes(21), BodyTooLarge),
        (BhttpLimits(max_head_bytes=20), STREAMED[:3] + b"\x80\x00\xff\xff", None),
        (BhttpLimits(max_fields=1), STREAMED, MalformedInner),
        (BhttpLimits(max_content_bytes=5), STREAMED, BodyTooLarge),
        (BhttpLimits(max_content_bytes=6), STREAMED, None),
        (BhttpLimits(max_informational=0), b"\x03\x40\x64\x00", MalformedInner),
    ):
        parser = ResponseParser(limits=limits)
        if error is None:
            parser.feed(data)
            continue
        with pytest.raises(error):
            parser.feed(data)
        with pytest.raises(ChannelMisuse):
            parser.feed(b"")
    for bad in (-1, 1 << 40):
        with pytest.raises(ValueError, match="max_head_bytes"):
            BhttpLimits(max_head_bytes=bad)


def test_a_declared_length_alone_costs_no_memory() -> None:
    parser = RequestParser(limits=BhttpLimits(max_head_bytes=1000))
    parser.feed(b"\x00\xff\xff\xff\xff\xff\xff\xff\xff")
    parser.feed(bytes(900))
    with pytest.raises(BodyTooLarge):
        parser.feed(bytes(200))


def test_calls_after_the_end_are_misuse() -> None:
    parser = RequestParser()
    with pytest.raises(TruncatedInner):
        parser.require_head()
    parser.feed(KNOWN)
    parser.finish()
    for call in (parser.finish, lambda: parser.feed(b"")):
        with pytest.raises(ChannelMisuse):
            call()


def test_mutations_raise_only_our_errors() -> None:
    rng = random.Random(9292)
    num_refused = 0
    for _ in range(2000):
        message = bytearray(rng.choice((KNOWN, STREAMED)))
        for _ in range(rng.randint(1, 4)):
            message[rng.randrange(len(message))] = rng.randrange(256)
        try:
            parse_request(bytes(message))
        except ChannelError:
            num_refused += 1
        try:
            parse_response(bytes(message))
        except ChannelError:
            num_refused += 1
    assert num_refused > 2000


def test_contents_stay_out_of_repr() -> None:
    request = Request(
        method="POST", path="/", fields=(("authorization", "canary"),), content=b"canary"
    )
    response = Response(status=200, fields=(("a", "canary"),), content=b"canary")
    assert "canary" not in repr((request, response))


def sized(data: bytes) -> bytes:
    return encode_varint(len(data)) + data


@pytest.mark.parametrize("is_known", [True, False])
def test_connection_fields_are_dropped_where_asked_for(is_known: bool) -> None:
    """Written by hand, since our own side cannot write them."""
    given = (("accept", "*/*"), ("connection", "close"), ("te", "gzip"), ("te", "trailers"))
    lines = b"".join(sized(text.encode()) for field in given for text in field)
    control = b"".join(sized(text) for text in (b"POST", b"https", b"", b"/"))
    if is_known:
        data = encode_varint(0) + control + sized(lines) + sized(b"body") + encode_varint(0)
    else:
        body = serialize_content_chunk(b"body") + serialize_end()
        data = encode_varint(2) + control + lines + encode_varint(0) + body
    with pytest.raises(MalformedInner):
        parse_request(data)
    request = parse_request(data, drops_connection_fields=True)
    assert request.fields == (("accept", "*/*"), ("te", "trailers"))
    assert request.content == b"body"


def test_what_is_about_a_connection_goes_with_the_fields_that_it_names() -> None:
    kept = (("content-type", "text/plain"), ("te", "trailers"))
    gone = (("connection", "close, X-Hop"), ("x-hop", "1"), ("proxy-connection", "close"))
    assert without_connection_fields((*gone, *kept, ("te", "gzip"))) == kept
    Response(status=200, fields=kept)

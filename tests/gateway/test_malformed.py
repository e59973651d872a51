"""Is what is no HTTP answered in the shape that its clients read, whatever is wrong with it?"""

import json
import time
from contextlib import closing, suppress

import pytest

from gateway.malformed import path_of
from tests.gateway.test_connections import ENDLESS, connect, read_to_end, serving
from tests.support.patience import PATIENCE_S

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
MALFORMED = {
    "two lengths": HEAD + b"content-length: 5\r\ncontent-length: 6\r\n\r\nhello",
    "a negative length": HEAD + b"content-length: -1\r\n\r\n",
    "a large head": HEAD + b"a: " + b"x" * 200_000,
    "many headers": HEAD + b"".join(b"a%d: x\r\n" % n for n in range(20_000)) + b"\r\n",
    "a long target": b"GET /v1/models?" + b"x" * 100_000,
    "no host": b"GET /v1/models HTTP/1.1\r\n\r\n",
    "a target that is not ASCII": b"GET /v1/\xc3\xa9 HTTP/1.1\r\nhost: x\r\n\r\n",
    "an escaped path": b"GET /%761/models HTTP/1.1\r\n\r\n",
}


def answer_to(sent: bytes) -> tuple[bytes, bytes]:
    """The head and the body of the answer, after which the connection ends."""
    with serving() as port, closing(connect(port)) as client:
        with suppress(ConnectionError):  # the rest of it is not read
            client.sendall(sent)
        head, _, body = read_to_end(client).partition(b"\r\n\r\n")
        return head.lower(), body


@pytest.mark.parametrize("what", MALFORMED)
def test_a_client_of_the_api_is_told_in_its_own_shape(what: str) -> None:
    head, body = answer_to(MALFORMED[what])
    assert head.startswith(b"http/1.1 400 ")
    assert b"content-type: application/json" in head
    assert head.count(b"connection: close") == 1
    error = json.loads(body)["error"]
    assert (error["code"], error["type"]) == ("malformed_http", "invalid_request_error")


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nhost: x\r\ncontent-length: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00 /v1/\r\n\r\n",  # TLS to a port that has none
        b"GET /v1x HTTP/1.1\r\n\r\n",
        b"GET https://x/v1/models HTTP/1.1\r\n\r\n",
        b"nonsense\r\n\r\n",
    ],
)
def test_anybody_else_gets_a_problem(sent: bytes) -> None:
    head, body = answer_to(sent)
    assert b"content-type: application/problem+json" in head
    problem = json.loads(body)
    assert (problem["code"], problem["status"]) == ("malformed_http", 400)


def test_broken_chunks_are_told_while_nothing_was_answered() -> None:
    head = b"POST /swallow HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    answered, body = answer_to(head + b"nonsense\r\n")
    assert answered.startswith(b"http/1.1 400 ")
    assert json.loads(body)["code"] == "malformed_http"


def test_broken_chunks_under_an_answer_cut_it() -> None:
    """It must not read as a whole one."""
    with serving() as port, closing(connect(port)) as client:
        client.sendall(b"POST /endless HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        assert client.recv(16).startswith(b"HTTP/1.1 200 ")
        client.sendall(b"nonsense\r\n")
        started_s = time.monotonic()
        rest = read_to_end(client)
        assert time.monotonic() - started_s < PATIENCE_S
        assert not rest.endswith(b"0\r\n\r\n")
        assert b"malformed_http" not in rest
        assert ENDLESS.ends.get(timeout=PATIENCE_S) == "left"  # who streamed was told


def test_the_second_request_of_a_connection_has_a_path_of_its_own() -> None:
    good = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
    _, body = answer_to(good + MALFORMED["no host"])
    assert b"here" in body
    assert json.loads(body[body.index(b'{"error"') :])["error"]["code"] == "malformed_http"


def test_an_answer_to_head_has_no_body() -> None:
    head, body = answer_to(b"HEAD /v1/models HTTP/1.1\r\n\r\n")
    assert head.startswith(b"http/1.1 400 ")
    assert body == b""


@pytest.mark.parametrize(
    ("opening", "path"),
    [
        (b"GET /v1/models?a=b HTTP/1.1\r\nx: /y z", "/v1/models"),
        (b"GET /v1/mod", "/v1/mod"),
        (b"GET  /v1/models", ""),
        (b"/v1/models", ""),
        (b"", ""),
    ],
)
def test_the_path_is_that_of_the_request_line(opening: bytes, path: str) -> None:
    assert path_of(opening) == path

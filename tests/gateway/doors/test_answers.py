"""Is what an app answers sealed, whatever it says of its connection?"""

from starlette.types import Message

from attestation.channel import bhttp
from gateway.doors.answers import SealedAnswer


async def test_fields_of_a_connection_are_left_out() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    answer = SealedAnswer(
        send, media_type="x/y", seal_whole=lambda data: data, sealer=None, is_padded=False
    )
    headers = [
        (b"Proxy-Connection", b"keep-alive"),
        (b"Connection", b"x-hop"),
        (b"x-hop", b"1"),
        (b"Content-Length", b"2"),
        (b"x-end", b"2"),
    ]
    await answer.send({"type": "http.response.start", "status": 200, "headers": headers})
    await answer.send({"type": "http.response.body", "body": b"ok"})
    assert bhttp.parse_response(sent[1]["body"]).fields == (("x-end", "2"),)

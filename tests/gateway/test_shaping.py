"""Do padded and paced streams say what they said, in other sizes and at other times?"""

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.doors.inner import marked
from gateway.shaping import CADENCE_S, StreamShaper
from tests.support.virtual_time import in_virtual_time

EVENTS = [b"data: %d\n\n" % number for number in range(5)]


def app_of(
    events: Sequence[bytes], *, media_type: bytes = b"text/event-stream", gap_s: float = 0
) -> ASGIApp:
    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        headers = [(b"content-type", media_type)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for event in events:
            await send({"type": "http.response.body", "body": event, "more_body": True})
            await asyncio.sleep(gap_s)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return app


async def shaped(app: ASGIApp, *, is_sealed: bool = True, **options: bool) -> list[Message]:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append({**message, "at_s": asyncio.get_running_loop().time()})

    async def receive() -> Message:
        raise AssertionError("nothing is received here")

    scope: Scope = {"type": "http"}
    shaper = StreamShaper(app, **{"is_padded": True, "has_cadence": False, **options})
    await shaper(marked(scope, "ohttp") if is_sealed else scope, receive, send)
    return sent


def bodies(messages: Sequence[Message]) -> list[bytes]:
    return [message["body"] for message in messages if message.get("body")]


def without_comments(data: bytes) -> bytes:
    kept = [event for event in data.split(b"\n\n") if not event.startswith(b":")]
    return b"\n\n".join(kept)


async def test_each_chunk_is_padded_and_says_the_same() -> None:
    sent = bodies(await shaped(app_of(EVENTS)))
    assert [len(body) for body in sent] == [256] * 5
    assert without_comments(b"".join(sent)) == b"".join(EVENTS)


@pytest.mark.parametrize(
    ("options", "app"),
    [
        ({"is_sealed": False}, app_of(EVENTS)),
        ({"is_padded": False}, app_of(EVENTS)),
        ({}, app_of(EVENTS, media_type=b"application/json")),
        ({"has_cadence": True}, app_of(EVENTS, media_type=b"application/json")),
    ],
    ids=["in-plain", "switched-off", "no-stream", "no-stream-on-a-beat"],
)
async def test_all_else_passes_as_it_is(options: dict[str, bool], app: ASGIApp) -> None:
    assert bodies(await shaped(app, **options)) == EVENTS


@pytest.mark.parametrize("is_sealed", [False, True])
@in_virtual_time
async def test_a_beat_hides_when_events_came(is_sealed: bool) -> None:
    app = app_of(EVENTS, gap_s=2.2 * CADENCE_S)
    messages = await shaped(app, is_sealed=is_sealed, has_cadence=True)
    sent = bodies(messages)
    assert {len(body) for body in sent} == {256}
    assert without_comments(b"".join(sent)) == b"".join(EVENTS)
    assert any(body.startswith(b":") for body in sent)  # filler where nothing had come
    assert messages[-1]["more_body"] is False
    times = [m["at_s"] for m in messages if m["type"] == "http.response.body"]
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert gaps == pytest.approx([CADENCE_S] * len(gaps))


@in_virtual_time
async def test_events_of_one_beat_go_out_together() -> None:
    messages = await shaped(app_of(EVENTS), has_cadence=True)
    assert len(bodies(messages)) < len(EVENTS)


@in_virtual_time
async def test_a_reader_that_does_not_read_holds_up_the_app() -> None:
    held: list[int] = []
    may_send = asyncio.Event()

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for number in range(40):
            await send({"type": "http.response.body", "body": bytes(10_000), "more_body": True})
            held.append(number)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            await may_send.wait()

    async def receive() -> Message:
        raise AssertionError("nothing is received here")

    shaper = StreamShaper(app, is_padded=True, has_cadence=True)
    running = asyncio.ensure_future(shaper({"type": "http"}, receive, send))
    await asyncio.sleep(4 * CADENCE_S)
    assert len(held) < 20
    may_send.set()
    await running
    assert len(held) == 40


@pytest.mark.parametrize("has_cadence", [False, True])
async def test_what_breaks_the_sending_breaks_the_app(has_cadence: bool) -> None:
    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            raise OSError("gone")

    async def receive() -> Any:
        raise AssertionError("nothing is received here")

    shaper = StreamShaper(app_of(EVENTS, gap_s=CADENCE_S), is_padded=True, has_cadence=has_cadence)
    with pytest.raises(OSError, match="gone"):
        await shaper(marked({"type": "http"}, "ohttp"), receive, send)

"""Is a stream told as finished only when it is, and is every way to end it told apart?"""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import UTC, datetime
from typing import cast

import pytest
from opentelemetry.sdk.trace import TracerProvider

from gateway import sse
from gateway.calls import MAX_ANSWER_BYTES, Call
from gateway.chat_call import CHAT_PATH, chat_reader
from gateway.drain import Drain
from gateway.exchange import Exchange
from gateway.observe import Clocks, RequestTrace, Tracing
from gateway.problems import GatewayError
from gateway.relay import Relay
from gateway.sealed import SealedExchange, truncated
from gateway.workers import WorkerDirectory

CALL = Call(
    path=CHAT_PATH,
    operation="chat",
    model="m",
    body=b"{}",
    is_streamed=True,
    reader=chat_reader(wants_usage=False),
)
TEXT = sse.encode_json({"choices": [{"delta": {"content": "a"}, "finish_reason": None}]})
END = sse.encode_json({"choices": [{"delta": {}, "finish_reason": "stop"}]})


class ScriptedExchange:
    """Yields `pieces`, then fails as told."""

    def __init__(self, pieces: list[bytes], failure: GatewayError | None) -> None:
        self.pieces = pieces
        self.failure = failure
        self.rest = self.content()

    async def read(self) -> bytes | None:
        return await anext(self.rest, None)

    async def content(self) -> AsyncGenerator[bytes, None]:
        for piece in self.pieces:
            yield piece
        if self.failure is not None:
            raise self.failure


CLOCKS = Clocks(monotonic_ns=lambda: 1, unix_ns=lambda: 1)


def make_trace() -> RequestTrace:
    tracing = Tracing(provider=TracerProvider(), clocks=CLOCKS, instance_id="gateway")
    return tracing.start_request(request_id="r", traceparent=None, route=CHAT_PATH)


def make_relay(
    drain: Drain,
    *,
    deadline_s: float = 10.0,
    silence_s: float = 60.0,
    directory: WorkerDirectory | None = None,
) -> Relay:
    return Relay(
        directory=cast(WorkerDirectory, directory),
        drain=drain,
        salt_secret=b"s",
        deadline_s=deadline_s,
        silence_s=silence_s,
        rng=bytes,
        utc_now=lambda: datetime(2026, 1, 1, tzinfo=UTC),
        clocks=CLOCKS,
        log_fault=pytest.fail,
    )


def make_exchange(
    drain: Drain,
    *,
    deadline_s: float = 10.0,
    silence_s: float = 60.0,
    directory: WorkerDirectory | None = None,
    is_streamed: bool = True,
) -> Exchange:
    relay = make_relay(drain, deadline_s=deadline_s, silence_s=silence_s, directory=directory)
    return Exchange(relay=relay, call=replace(CALL, is_streamed=is_streamed), trace=make_trace())


async def told(pieces: list[bytes], failure: GatewayError | None = None) -> list[bytes]:
    exchange = make_exchange(Drain(drain_s=0))
    scripted = ScriptedExchange(pieces, failure)
    exchange.begin(cast(SealedExchange, scripted))
    return [data async for data in exchange.events()]


async def test_a_whole_stream() -> None:
    assert await told([TEXT, END + sse.DONE]) == [TEXT, END, sse.DONE]


async def test_comments_that_pad_the_sealed_hop_end_there() -> None:
    pieces = [b": " + b"x" * 99 + b"\n\n" + TEXT, END + b":\n\n", sse.DONE]
    assert await told(pieces) == [TEXT, END, sse.DONE]


@pytest.mark.parametrize("pieces", [[TEXT, END, sse.DONE], [TEXT + END + sse.DONE]])
async def test_done_is_not_told_before_the_final_chunk_verified(pieces: list[bytes]) -> None:
    *_, last = await told(pieces, truncated())
    assert b'"upstream_truncated"' in last
    assert sse.DONE not in b"".join(await told(pieces, truncated()))


@pytest.mark.parametrize("pieces", [[], [TEXT, END], [TEXT, END, b"data: [DO"]])
async def test_a_verified_end_without_done_is_truncated(pieces: list[bytes]) -> None:
    *_, last = await told(pieces)
    assert b'"upstream_truncated"' in last


@pytest.mark.parametrize("is_streamed", [True, False])
async def test_an_answer_that_is_too_large_was_asked_for(is_streamed: bool) -> None:
    """It says nothing of the worker, which would get no more requests of others for it."""
    exchange = make_exchange(Drain(drain_s=0), is_streamed=is_streamed)
    pieces = [b"x" * (MAX_ANSWER_BYTES // 2)] * 3
    exchange.begin(cast(SealedExchange, ScriptedExchange(pieces, None)))
    if is_streamed:
        (told,) = [data async for data in exchange.events()]
        assert b'"invalid_value"' in told
    else:
        with pytest.raises(GatewayError) as caught:
            await exchange.whole()
        assert caught.value.code == "invalid_value"


async def test_stopping_while_the_deadline_passes_interrupts_everybody_else_too() -> None:
    drain = Drain(drain_s=0)
    late, other = make_exchange(drain, deadline_s=-1), make_exchange(drain)
    runs = [asyncio.ensure_future(e.run(asyncio.sleep(30))) for e in (late, other)]
    await asyncio.sleep(0)  # both run
    await asyncio.sleep(0)  # the first one's time is up; it has not yet heard
    drain._interrupt_all()
    codes = [
        cast(GatewayError, e).code for e in await asyncio.gather(*runs, return_exceptions=True)
    ]
    assert codes[1] == "server_stopping"
    assert codes[0] in {"request_timeout", "server_stopping"}

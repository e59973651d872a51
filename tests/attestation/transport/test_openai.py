"""Do three lines make the unmodified `openai` package speak to an attested gateway?

Its newest types name httpx2's client alone; it takes httpx's as well.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from attestation.channel import bhttp
from attestation.transport import EvidenceRefused, attested_async_client, attested_client
from tests.support.attested_gateway import Running

PROMPT = "the-canary-sings-at-noon"
CHUNKS = ("Hel", "lo", "!")


async def chat(request: bhttp.Request) -> tuple[int, AsyncIterator[bytes]]:
    """OpenAI's two answers."""
    body = json.loads(request.content)

    async def events() -> AsyncIterator[bytes]:
        for text in CHUNKS:
            await asyncio.sleep(0)
            delta = {"index": 0, "delta": {"content": text}, "finish_reason": None}
            chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
            yield b"data: " + json.dumps({**chunk, "choices": [delta]}).encode() + b"\n\n"
        yield b"data: [DONE]\n\n"

    async def whole() -> AsyncIterator[bytes]:
        message = {"role": "assistant", "content": "".join(CHUNKS)}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        completion = {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
        yield json.dumps({**completion, "choices": [choice]}).encode()

    return 200, events() if body.get("stream") else whole()


@pytest.fixture
def chatting(running: Running) -> Running:
    running.gateway.answer = chat
    return running


def test_whole_and_streamed(chatting: Running) -> None:
    http: Any = attested_client(chatting.url, policy="development", ca_file=chatting.ca_file)
    with openai.OpenAI(base_url=chatting.url, api_key="sk-x", http_client=http) as client:
        whole = client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": PROMPT}]
        )
        assert whole.choices[0].message.content == "Hello!"
        stream = client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": PROMPT}], stream=True
        )
        assert [chunk.choices[0].delta.content for chunk in stream] == list(CHUNKS)
    assert all(PROMPT.encode() not in posted for posted in chatting.gateway.posted)


async def test_on_an_event_loop_through_a_change_of_key(chatting: Running) -> None:
    http: Any = attested_async_client(chatting.url, policy="development", ca_file=chatting.ca_file)
    async with openai.AsyncOpenAI(
        base_url=chatting.url, api_key="sk-x", http_client=http, max_retries=0
    ) as client:
        for _ in range(2):
            stream = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": PROMPT}], stream=True
            )
            pieces = [chunk.choices[0].delta.content async for chunk in stream]
            assert pieces == list(CHUNKS)
            chatting.gateway.rotate()


def test_a_refusal_is_the_cause_of_what_the_package_raises(chatting: Running) -> None:
    chatting.gateway.flip_bit = True
    http: Any = attested_client(chatting.url, policy="development", ca_file=chatting.ca_file)
    with (
        openai.OpenAI(
            base_url=chatting.url, api_key="sk-x", http_client=http, max_retries=0
        ) as client,
        pytest.raises(openai.APIConnectionError) as caught,
    ):
        client.models.list()
    assert isinstance(caught.value.__cause__, EvidenceRefused)
    assert caught.value.__cause__.code == "quote_signature"
    assert chatting.gateway.posted == []

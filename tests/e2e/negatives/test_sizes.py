"""What do the lengths of a sealed stream's chunks tell?  Attack 23 of docs/threat-model.md.

Whoever sees ciphertext sees where chunks begin and end; a chunk sealed as it comes is as long as
its token [Whisper Leak, arXiv 2511.03675]. A service in the engine's place answers on two topics
whose words differ in length, so that without padding the topic can be told, and the test has power.
"""

import json
import os
import random
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest

from attestation.channel import CHUNKED_REQUEST_TYPE, ClientRequest, KeyConfig, bhttp
from attestation.channel.varint import parse_varint
from gateway import sse
from gateway.worker.inner import InnerRequest, InnerResponse, json_response
from tests.gateway.doors.clients import inner_request, key_list
from tests.gateway.support import MODEL, Stack, chat_body, running_stack
from tests.support.statistics import cross_validated_accuracy

EVERYDAY = "the cat sat on a mat and it was so far to go up or to do it all in the sun at noon"
ONCOLOGY = (
    "carcinoma metastasis chemotherapy radiological diagnosis haematological oncology adjuvant "
    "the and of with administered contraindicated prognosis"
)
TOPICS = (EVERYDAY.split(), ONCOLOGY.split())
NUM_WORDS = 12
NUM_STREAMS = 1000  # of both topics together, with padding
NUM_CONTROL = 300
DOOR = "/ohttp"
AT_MOST = 0.55
AT_LEAST = 0.75
NONCE_BYTES = 16


class TopicalService:
    """Answers with words of the topic that the prompt names; the rest is the engine's protocol."""

    async def respond(self, request: InnerRequest) -> InnerResponse:
        if request.path == "/v1/models":
            entry = {"id": MODEL, "object": "model", "created": 0, "owned_by": "t"}
            return json_response(200, {"object": "list", "data": [entry]})
        prompt = json.loads(request.body)["messages"][0]["content"]
        topic, _, seed = prompt.partition(" ")
        words = random.Random(seed).choices(TOPICS[int(topic)], k=NUM_WORDS)
        return InnerResponse(status=200, media_type=sse.MEDIA_TYPE, body=_events(words))


async def _events(words: list[str]) -> AsyncGenerator[bytes, None]:
    for word in words:
        choice = {"index": 0, "delta": {"content": f" {word}"}, "finish_reason": None}
        yield _event([choice])
    yield _event([{"index": 0, "delta": {}, "finish_reason": "stop"}])
    usage = {
        "prompt_tokens": 1,
        "completion_tokens": NUM_WORDS,
        "total_tokens": NUM_WORDS + 1,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    yield _event([], usage=usage)
    yield sse.DONE


def _event(choices: list[object], **members: object) -> bytes:
    base = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": MODEL}
    return sse.encode_json({**base, "choices": choices, **members})


def lengths_seen(stack: Stack, key: KeyConfig, topic: int, number: int) -> list[int]:
    """Of the chunks of one answer, as anybody on the way to the client sees them."""
    messages = [{"role": "user", "content": f"{topic} {number}"}]
    request = inner_request(stack, chat_body(messages=messages, stream=True))
    body = ClientRequest(key, rng=os.urandom).seal_message(bhttp.serialize_request(request))
    answer = stack.client.post(DOOR, content=body, headers={"content-type": CHUNKED_REQUEST_TYPE})
    assert answer.status_code == 200
    lengths, at = [], NONCE_BYTES
    while (found := parse_varint(answer.content, at)) is not None and found[0]:
        lengths.append(found[0])
        at = found[1] + found[0]
    assert len(lengths) > 1
    return lengths[1:]  # the first holds the head, whose request id and limits are no secret


def accuracy(folder: Path, num_streams: int, *, padding: bool) -> float:
    with running_stack(folder, gateway__privacy__padding=padding) as stack:
        state = stack.worker.app.state
        state.ready = replace(state.ready, service=TopicalService())
        key = key_list(stack)[0]
        # In turn: what the machine does besides decides how many events share a chunk.
        pairs = [
            [lengths_seen(stack, key, topic, number) for topic in (0, 1)]
            for number in range(num_streams // 2)
        ]
    return cross_validated_accuracy(list(zip(*pairs, strict=True)))


@pytest.mark.slow
def test_topics_cannot_be_told_by_the_lengths_of_chunks(tmp_path: Path) -> None:
    assert accuracy(tmp_path, NUM_STREAMS, padding=True) <= AT_MOST


def test_without_padding_they_can(tmp_path: Path) -> None:
    """The control."""
    assert accuracy(tmp_path, NUM_CONTROL, padding=False) >= AT_LEAST

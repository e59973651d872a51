"""Do events take the short way where they may, in order, and the long one where they must?"""

import asyncio
import itertools
import json
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.connections import BoundedProtocol
from gateway.direct import DIRECT, Direct, DirectSlot, writer_at_once
from gateway.doors.inner import marked
from tests.gateway.support import HashEngine, running_stack
from tests.support.patience import PATIENCE_S

SMALL_BUFFER_BYTES = 4096
NUM_TOKENS = 24
STEP_S = 0.005  # long enough for readers to wait for the next


def test_a_layer_changes_what_passes_it() -> None:
    written: list[bytes] = []
    direct = Direct(lambda: True, written.append).through(bytes.upper).through(lambda b: b + b"!")
    direct.write(b"a")
    assert written == [b"A!"]


def test_behind_a_seal_there_is_no_short_way() -> None:
    scope = {DIRECT: Direct(lambda: True, lambda _data: None), "type": "http"}
    slot = DirectSlot()
    slot.fill(marked(scope, "door"))
    assert slot.direct is None
    slot.fill(scope)
    assert slot.direct is scope[DIRECT]


@asynccontextmanager
async def transport_and_peer() -> AsyncGenerator[tuple[asyncio.Transport, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BUFFER_BYTES)
    theirs.settimeout(PATIENCE_S)
    transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=ours)
    try:
        yield transport, theirs
    finally:
        transport.abort()
        theirs.close()
        await asyncio.sleep(0)


async def test_it_is_written_before_the_loop_goes_on() -> None:
    async with transport_and_peer() as (transport, peer):
        writer_at_once(transport)(b"now")
        assert peer.recv(16) == b"now"


async def test_what_the_socket_does_not_take_follows_in_order() -> None:
    async with transport_and_peer() as (transport, peer):
        write = writer_at_once(transport)
        sent = b"".join(bytes([n]) * 1000 for n in range(200))
        for n in range(200):
            write(sent[1000 * n : 1000 * (n + 1)])
        assert transport.get_write_buffer_size() > 0
        got = await asyncio.to_thread(_exactly, peer, len(sent))
    assert got == sent


async def test_after_what_waits_and_never_into_a_closed_socket() -> None:
    async with transport_and_peer() as (transport, peer):
        write = writer_at_once(transport)
        transport.write(b"x" * 100 * SMALL_BUFFER_BYTES)
        write(b"last")
        got = await asyncio.to_thread(_exactly, peer, 100 * SMALL_BUFFER_BYTES + 4)
        assert got.endswith(b"xlast")
        transport.close()
        write(b"nobody")
        await asyncio.sleep(0)
        assert peer.recv(16) == b""


def _exactly(peer: socket.socket, num_bytes: int) -> bytes:
    got = b""
    while len(got) < num_bytes:
        got += peer.recv(1 << 16)
    return got


class Counted:
    """How many pieces each server wrote the short way."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.by_gateway = self.by_worker = 0
        made = BoundedProtocol._direct

        def counting(protocol: BoundedProtocol) -> Direct:
            name = str(protocol.transport.get_extra_info("sockname"))
            is_gateways = name.endswith("gateway.sock")
            return made(protocol).through(self._by_gateway if is_gateways else self._by_worker)

        monkeypatch.setattr(BoundedProtocol, "_direct", counting)

    def _by_gateway(self, data: bytes) -> bytes:
        self.by_gateway += 1
        return data

    def _by_worker(self, data: bytes) -> bytes:
        self.by_worker += 1
        return data


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


def streamed_and_whole(folder: Path, **flags: Any) -> tuple[str, str]:
    """The text of a stream of NUM_TOKENS, and of the same answer whole."""
    asked: dict[str, Any] = {"temperature": 0, "max_tokens": NUM_TOKENS, "ignore_eos": True}
    with running_stack(folder, engine=HashEngine(step_s=STEP_S), **flags) as stack:
        lines = stack.chat(stream=True, **asked).text.splitlines()
        whole = stack.chat(**asked).json()["choices"][0]["message"]["content"]
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    assert data[-1] == "[DONE]"
    choices = [json.loads(item)["choices"] for item in data[:-1]]
    return "".join(c[0]["delta"].get("content") or "" for c in choices if c), whole


def test_a_stream_takes_it_through_both_processes(tmp_path: Path, counted: Counted) -> None:
    streamed, whole = streamed_and_whole(tmp_path)
    assert streamed == whole
    assert counted.by_gateway > NUM_TOKENS // 3
    assert counted.by_worker > NUM_TOKENS // 3


def test_with_a_cadence_only_the_worker_takes_it(tmp_path: Path, counted: Counted) -> None:
    streamed, whole = streamed_and_whole(tmp_path, **{"gateway.privacy.fixed_cadence": True})
    assert streamed == whole
    assert counted.by_gateway == 0
    assert counted.by_worker > NUM_TOKENS // 3


def test_a_client_without_room_gets_the_same(
    tmp_path: Path, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered = BoundedProtocol._direct
    full = itertools.cycle((True, True, False))

    def filling_up(protocol: BoundedProtocol) -> Direct:
        direct = offered(protocol)
        return Direct(lambda: next(full) and direct.is_ready(), direct.write)

    monkeypatch.setattr(BoundedProtocol, "_direct", filling_up)
    streamed, whole = streamed_and_whole(tmp_path)
    assert streamed == whole
    assert 0 < counted.by_gateway < NUM_TOKENS

"""``python -m tests.chaos.crowd KIND --port P --ca FILE --size N``: a crowd, in its own process.

Prints ``ready`` once all have come, and one JSON object with their counts when its input ends. Who
is sent away comes back, but not all at once: a flood of handshakes is another attack. The key that
some of them have, of another tenant, is in ``$STARSHADE_API_KEY``.
"""

import argparse
import asyncio
import contextlib
import gzip
import json
import os
import ssl
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

import click

from gateway.cli_support import environment

HOST: Final = "127.0.0.1"
DRIP_S: Final = 1.0  # between two bytes of a slow request
BOMB_PAUSE_S: Final = 0.2  # between two bombs of one stranger
BOMB_BYTES: Final = 64 << 20  # inflated; about 64 KB on the wire
BACK_AFTER_S: Final = 0.5
PER_S: Final = 200  # at most as many come in one second, at the beginning as well


@dataclass
class Crowd:
    """``counts`` says what became of them."""

    port: int
    context: ssl.SSLContext
    key: str = field(repr=False)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    counts: Counter[str] = field(default_factory=Counter)

    def head(self) -> bytes:
        """The beginning of a request, without its end."""
        return (
            "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {self.key}\r\n"
        ).encode()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with self.turn:
            await asyncio.sleep(1 / PER_S)
        reader, writer = await asyncio.open_connection(HOST, self.port, ssl=self.context)
        self.counts["connected"] += 1
        return reader, writer


Stranger = Callable[[Crowd, Callable[[], None]], Awaitable[None]]


async def idle(crowd: Crowd, come: Callable[[], None]) -> None:
    """Says nothing for as long as it may."""
    reader, writer = await crowd.connect()
    try:
        come()
        await reader.read()
    finally:
        writer.close()


async def slow_head(crowd: Crowd, come: Callable[[], None]) -> None:
    """Slowloris: one byte of a head that never ends."""
    reader, writer = await crowd.connect()
    try:
        come()
        await _drip(
            reader, writer, b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-A: " + b"b" * 4096
        )
    finally:
        writer.close()


async def slow_body(crowd: Crowd, come: Callable[[], None]) -> None:
    """R-U-Dead-Yet: a whole head, then one byte of the body it promised.

    With a tenant's key, since without one it is refused before its body and holds nothing.
    """
    reader, writer = await crowd.connect()
    try:
        writer.write(crowd.head() + b"Content-Length: 100000\r\n\r\n")
        come()
        await _drip(reader, writer, b"{" * 100_000)
    finally:
        writer.close()


async def bomb(crowd: Crowd, come: Callable[[], None]) -> None:
    """Little on the wire, much when somebody inflates it."""
    reader, writer = await crowd.connect()
    try:
        come()
        fields = b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(_BOMB)
        writer.write(crowd.head() + fields + _BOMB)
        status = b""
        with contextlib.suppress(OSError):  # reset, because what was not read of it is much
            await writer.drain()
            status = await reader.readline()
        crowd.counts[status[9:12].decode("ascii", "replace") or "cut"] += 1
        await asyncio.sleep(BOMB_PAUSE_S)
    finally:
        writer.close()


async def _drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes) -> None:
    """Until the other side has had enough."""
    ended = asyncio.ensure_future(reader.read(1))
    try:
        for byte in data:
            writer.write(bytes([byte]))
            if (await asyncio.wait({ended}, timeout=DRIP_S))[0]:
                return
    finally:
        ended.cancel()


KINDS: Final[dict[str, Stranger]] = {
    "idle": idle,
    "slow-head": slow_head,
    "slow-body": slow_body,
    "bomb": bomb,
}
_BOMB: Final = gzip.compress(bytes(BOMB_BYTES), mtime=0)


async def _gather(crowd: Crowd, stranger: Stranger, size: int) -> None:
    num_here, all_here = 0, asyncio.Event()

    def come() -> None:
        nonlocal num_here
        num_here += 1
        if num_here >= size:
            all_here.set()

    async def one() -> None:
        while True:
            try:
                await stranger(crowd, come)
            except (OSError, asyncio.IncompleteReadError):
                crowd.counts["failed"] += 1
            await asyncio.sleep(BACK_AFTER_S)

    tasks = [asyncio.ensure_future(one()) for _ in range(size)]
    await all_here.wait()
    click.echo("ready")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    click.echo(json.dumps(crowd.counts))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ca", required=True)
    parser.add_argument("--size", type=int, required=True)
    options = parser.parse_args()
    os.nice(19)  # real strangers have computers of their own
    crowd = Crowd(
        port=options.port,
        context=ssl.create_default_context(cafile=options.ca),
        key=environment().get("STARSHADE_API_KEY", ""),
    )
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_gather(crowd, KINDS[options.kind], options.size))


if __name__ == "__main__":
    main()

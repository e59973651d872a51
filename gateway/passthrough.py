"""A gateway that cannot read: how does a sealed request reach the worker whose key it is for?

The gateway publishes the keys that its verified workers attested and holds none itself. It learns
from the outer request who asks (the API key) and for which key, and sees ciphertext of a length.
The request runs at the worker once its final chunk is there; the answer is passed on as it comes.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message

from attestation.channel import (
    CHUNKED_REQUEST_TYPE,
    PLAIN_REQUEST_TYPE,
    DecryptFailed,
    KeyConfig,
    KeyConfigError,
    serialize_key_configs,
)
from attestation.keyset import OhttpKey
from gateway.calls import MALFORMED, public_code, public_text
from gateway.deadline import Deadline
from gateway.doors.edge import KeyList
from gateway.doors.opening import refusal
from gateway.drain import Drain
from gateway.pins import HEADER as PIN_HEADER
from gateway.pins import parse_pins, require_grant_pins
from gateway.problems import GatewayError
from gateway.sealed import MAX_PROBLEM_BYTES, WorkerClient, read_bounded, truncated, unreachable
from gateway.silence import SilenceWatch, unanswered
from gateway.streaming import StreamedBody, until_disconnected
from gateway.worker_connection import WorkerGone
from gateway.worker_http import WorkerResponse
from gateway.worker_node import Grant, WorkerNode
from gateway.workers import WorkerDirectory

MEDIA_TYPES: Final = (CHUNKED_REQUEST_TYPE, PLAIN_REQUEST_TYPE)
T = TypeVar("T")


@dataclass(slots=True)
class KeyRoutes:
    """Which worker has which key id; where two have the same, the one that had it first."""

    memory: timedelta  # for so long a key opens after it was seen
    _seen: dict[int, tuple[str, datetime]] = field(default_factory=dict)

    def learn(self, nodes: Sequence[WorkerNode], now: datetime) -> None:
        """Takes up what the workers attested last, and forgets what cannot open any more."""
        self._seen = {
            key_id: (name, at)
            for key_id, (name, at) in self._seen.items()
            if now - at < self.memory
        }
        for node in nodes:
            for config in _for_clients(node.grant):
                holder, _ = self._seen.setdefault(config.key_id, (node.name, now))
                if holder == node.name:
                    self._seen[config.key_id] = (node.name, now)

    def holder(self, key_id: int) -> str | None:
        """The name of the worker that opens with this key."""
        return self._seen.get(key_id, (None, None))[0]


class PassThroughDoors:
    """Opens nothing."""

    mode: Final = "pass-through"

    def __init__(
        self,
        *,
        directory: WorkerDirectory,
        drain: Drain,
        utc_now: Callable[[], datetime],
        deadline_s: float,
        silence_s: float,
        rotation_s: float,
    ) -> None:
        """`rotation_s` is the workers' own."""
        self._directory = directory
        self._drain = drain
        self._utc_now = utc_now
        self._deadline_s = deadline_s
        self._silence_s = silence_s
        self._routes = KeyRoutes(memory=timedelta(seconds=2 * rotation_s))

    def attested(self) -> Sequence[OhttpKey]:
        return ()

    @property
    def changes_at(self) -> datetime:
        """Nothing here rotates: the next full hour."""
        hour = self._utc_now().replace(minute=0, second=0, microsecond=0)
        return hour + timedelta(hours=1)

    async def key_list(self, model: str | None) -> KeyList:
        """Keys of verified workers, those with the fewest open requests first.

        Raises: GatewayError `model_not_found`; why no worker is verified.
        """
        known = await self._directory.models()  # waits a little for a lease where there is none
        if model is not None and model not in known:
            raise GatewayError("model_not_found", "No worker serves this model.", param="model")
        now = self._utc_now()
        self._routes.learn(self._directory.nodes, now)
        serving = [node for node in self._directory.nodes if node.is_serving(now)]
        able = [node for node in serving if model is None or model in node.models]
        if not able:
            raise self._directory.readiness() or _no_worker()
        able.sort(key=lambda node: node.grant.client.num_open if node.grant else 0)
        grants = [node.grant for node in able if node.grant is not None]
        configs = [config for grant in grants for config in self._listed(grant)]
        if not configs:
            raise _no_worker()
        ends = min(grant.lease.not_after for grant in grants)
        return KeyList(body=serialize_key_configs(configs), fresh_s=(ends - now).total_seconds())

    def ehbp_key(self) -> KeyList:
        raise GatewayError("not_found", "This gateway does not open bodies.")

    async def respond(self, request: Request) -> Response:
        """Sends the request on. Raises: GatewayError."""
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type not in MEDIA_TYPES:
            raise GatewayError("unsupported_media_type", f"Send {' or '.join(MEDIA_TYPES)}.")
        stream = request.stream()
        try:
            head = await anext(stream, b"")
        except ClientDisconnect:
            raise GatewayError("client_disconnected", "The client went away.") from None
        node = self._node_for(head)
        grant = await self._lease(node)
        require_grant_pins(parse_pins(request.headers.getlist(PIN_HEADER)), grant)
        exchange = _BlindExchange(grant.client, Deadline(self._deadline_s, self._drain))
        exchange.watch(node, self._directory, silence_s=self._silence_s, utc_now=self._utc_now)
        try:
            return await exchange.open(request, _rejoined(head, stream), media_type)
        except GatewayError as err:
            if err.code == "upstream_unavailable":
                self._directory.failed(node)
            raise

    async def respond_tng(self, request: Request, *, now: datetime) -> Response:
        raise GatewayError("not_found", "There is no such endpoint.")

    async def keep(self) -> None:
        """Keys are the workers' own to rotate."""
        await asyncio.Event().wait()

    def _listed(self, grant: Grant) -> list[KeyConfig]:
        """Of two workers with one key id the second has to wait until it rotates."""
        node = grant.lease.node
        return [c for c in _for_clients(grant) if self._routes.holder(c.key_id) == node]

    async def _lease(self, node: WorkerNode) -> Grant:
        """A lease that has just ended is renewed first. Raises: GatewayError."""
        try:
            return self._directory.require_lease(node)
        except GatewayError as err:
            if err.code != "upstream_unavailable":
                raise
        await self._directory.reattest(node)
        return self._directory.require_lease(node)

    def _node_for(self, head: bytes) -> WorkerNode:
        """Raises: GatewayError `decrypt_failed`, `key_config_error`."""
        self._routes.learn(self._directory.nodes, self._utc_now())
        name = self._routes.holder(head[0]) if head else None
        node = next((node for node in self._directory.nodes if node.name == name), None)
        if node is None:
            raise refusal(
                KeyConfigError("no worker has the key") if head else DecryptFailed("malformed")
            )
        return node


class _BlindExchange:
    """One request on its way to a worker, and the answer on its way back."""

    def __init__(self, client: WorkerClient, deadline: Deadline) -> None:
        self._client = client
        self._deadline = deadline
        self._is_sent = asyncio.Event()
        self._response: WorkerResponse | None = None
        self._silence: SilenceWatch | None = None

    def watch(
        self,
        node: WorkerNode,
        directory: WorkerDirectory,
        *,
        silence_s: float,
        utc_now: Callable[[], datetime],
    ) -> None:
        """Until `close`; what is waited for before all is sent is the client."""

        async def is_alive(silence: timedelta) -> bool:
            return await directory.is_alive(node, since=utc_now() - silence)

        def give_up() -> None:
            directory.distrust(node)
            self._deadline.interrupt(unanswered())

        self._silence = SilenceWatch(
            silence_s=silence_s,
            is_waiting=lambda: self._is_sent.is_set() and self._deadline.is_awaiting,
            is_alive=is_alive,
            on_stuck=give_up,
        )

    async def open(
        self, request: Request, body: AsyncIterator[bytes], media_type: str
    ) -> StreamedBody:
        """The answer, whose head has arrived. Raises: GatewayError, the worker's own included."""

        async def receive_after() -> Message:
            await self._is_sent.wait()  # until then it is the body that is received
            return await request.receive()

        sending = self._client.post("/ohttp", _noting(body, self._is_sent), media_type=media_type)
        try:
            response = await self._run(until_disconnected(receive_after, sending))
            self._response = response
            if response.status != 200:
                raise await self._run(_refusal(response))
        except BaseException:
            await self.close()
            raise
        answer = StreamedBody(
            self._content(response),
            on_close=self.close,
            media_type=response.fields.get("content-type", "application/octet-stream"),
        )
        answer.headers["incremental"] = "?1"
        return answer

    async def close(self) -> None:
        self._deadline.close()
        if self._silence is not None:
            self._silence.close()
        response, self._response = self._response, None
        if response is not None:
            self._client.release(response)

    async def _content(self, response: WorkerResponse) -> AsyncGenerator[bytes, None]:
        """An answer that breaks off breaks off here too: it lacks its final chunk."""
        try:
            while (piece := await self._run(response.read())) is not None:
                yield piece
        except WorkerGone:
            raise self._client.failure(truncated()) from None

    async def _run(self, work: Awaitable[T]) -> T:
        """Within the request's deadline. Raises: GatewayError when time is up."""
        if self._silence is not None:
            self._silence.heard()
        try:
            return await self._deadline.run(work)
        except ClientDisconnect:
            raise GatewayError("client_disconnected", "The client went away.") from None


async def _refusal(response: WorkerResponse) -> GatewayError:
    """The worker's own, outside the seal, as ours."""
    try:
        problem = json.loads(await read_bounded(response.pieces(), MAX_PROBLEM_BYTES))
        return GatewayError(public_code(problem["code"]), public_text(problem["detail"]))
    except WorkerGone:
        return unreachable()
    except MALFORMED:
        return GatewayError("upstream_error", "The worker's refusal is malformed.")


async def _rejoined(head: bytes, rest: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    yield head
    async for data in rest:
        yield data


async def _noting(
    body: AsyncIterator[bytes], is_sent: asyncio.Event
) -> AsyncGenerator[bytes, None]:
    async for data in body:
        yield data
    is_sent.set()


def _for_clients(grant: Grant | None) -> Sequence[KeyConfig]:
    """A worker that expects a gateway before it would take its clients' word for what they are."""
    return grant.key_configs if grant is not None and grant.mode == "pass-through" else ()


def _no_worker() -> GatewayError:
    return GatewayError("upstream_unavailable", "No verified worker can be reached.")

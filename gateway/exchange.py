"""How does the answer of one dispatched call reach its client, event by event?

Nothing is buffered: an event goes out when its chunk opened, and `[DONE]` when the final one has;
where the client has room it goes out in the callback in which it came. [docs/decisions/0036]
Usage and times are read on the way past. The exchange ends with the client, with the deadline, with
a worker that neither sends anything nor attests any more, or with its own final chunk.
"""

from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from gateway import sse
from gateway.calls import MALFORMED, MAX_ANSWER_BYTES, Call, EventUse, too_large_an_answer
from gateway.deadline import Deadline
from gateway.direct import Direct, DirectSlot
from gateway.faults import describe_fault
from gateway.observe import RequestTrace
from gateway.problems import GatewayError
from gateway.sealed import SealedExchange, read_bounded, truncated
from gateway.silence import SilenceWatch, unanswered
from gateway.worker_load import Ticket
from gateway.worker_node import WorkerNode

if TYPE_CHECKING:
    from gateway.relay import Relay

CODES_OF_A_SICK_WORKER: Final = frozenset(
    {"upstream_unavailable", "upstream_truncated", "upstream_error"}
)
T = TypeVar("T")


class Exchange:
    """One dispatched call. `aclose` is idempotent and cancels the work at the worker."""

    def __init__(self, *, relay: "Relay", call: Call, trace: RequestTrace) -> None:
        self._relay = relay
        self._call = call
        self._trace = trace
        self._node: WorkerNode | None = None
        self._sealed: SealedExchange | None = None
        self._deadline = Deadline(relay.deadline_s, relay.drain)
        self._silence: SilenceWatch | None = None
        self._ticket: Ticket | None = None
        self._splitter = sse.EventSplitter()
        self._last = b""  # the event that ends the stream
        self.slot = DirectSlot()

    def begin(self, sealed: SealedExchange) -> None:
        self._sealed = sealed

    def watch(self, node: WorkerNode) -> None:
        """From now on `node` has something to answer."""
        self._forget()
        self._node = node
        self._ticket = self._relay.directory.dispatched(
            node, tokens=self._call.estimated_prompt_tokens
        )
        self._silence = SilenceWatch(
            silence_s=self._relay.silence_s,
            is_waiting=lambda: self._deadline.is_awaiting,
            is_alive=partial(self._is_alive, node),
            on_stuck=partial(self._give_up, node),
        )

    async def run(self, work: Awaitable[T]) -> T:
        """Awaits within the request's deadline. Raises: GatewayError when time is up."""
        if self._silence is not None:
            self._silence.heard()
        return await self._deadline.run(work)

    async def whole(self) -> bytes:
        """The unstreamed answer, complete and verified. Raises: GatewayError."""
        try:
            body = await self.run(self._read_whole())
            self._call.reader.read_whole(body, self._trace.facts)
        except GatewayError as err:
            self.note_failure(err)
            raise
        except MALFORMED:
            error = GatewayError("upstream_error", "The worker's answer is malformed.")
            self.note_failure(error)
            raise error from None
        self._note_success()
        return body

    async def events(self) -> AsyncGenerator[bytes, None]:
        """SSE bytes as they arrive. A failure becomes an error event; the stream then ends."""
        facts = self._trace.facts
        try:
            async with aclosing(self._checked_events()) as events:
                async for data in events:
                    yield data
            self._note_success()
        except GatewayError as err:
            facts.fail(err.code, status=200)
            self.note_failure(err)
            yield self._call.reader.error_event(err.code, err.message, err.param)
        except Exception as err:  # the stream's edge: the client must learn that it failed
            facts.fail("internal_error", status=200)
            self._relay.log_fault(describe_fault(err))
            yield self._call.reader.error_event("internal_error", "The relay failed.", None)

    async def aclose(self) -> None:
        self._deadline.close()
        self._forget()
        await self.leave()

    async def leave(self) -> None:
        """What this worker said is not what the client gets."""
        sealed, self._sealed = self._sealed, None
        if sealed is not None:
            await sealed.aclose()

    def _forget(self) -> None:
        """The worker that was watched owes this exchange nothing more."""
        if self._silence is not None:
            self._silence.close()
        if self._node is not None and self._ticket is not None:
            self._relay.directory.left(self._node, self._ticket)

    def note_failure(self, err: GatewayError) -> None:
        if self._node is not None and err.code in CODES_OF_A_SICK_WORKER:
            self._relay.directory.failed(self._node, self._ticket)

    def _note_success(self) -> None:
        if self._node is not None and self._trace.facts.error_code is None:
            self._relay.directory.succeeded(self._node)

    async def _checked_events(self) -> AsyncGenerator[bytes, None]:
        sealed, direct = self._begun(), self.slot.direct
        if direct is not None:
            sealed.divert(partial(self._pass_on, direct), is_ready=direct.is_ready)
        while (piece := await self.run(sealed.read())) is not None:
            if out := self._checked(piece):
                yield out
        if self._splitter.has_partial_event or not (self._last or self._trace.facts.error_code):
            raise truncated()
        if self._last:
            yield self._last

    def _pass_on(self, direct: Direct, piece: bytes) -> None:
        """While `read` waits. Raises: GatewayError."""
        if self._silence is not None:
            self._silence.heard()
        if out := self._checked(piece):
            direct.write(out)

    def _checked(self, piece: bytes) -> bytes:
        """The events that the client gets of it; none is held back but the last.

        Raises: GatewayError.
        """
        now_ns = self._relay.clocks.monotonic_ns()
        out = b""
        for event in self._split(piece):
            match self._read_event(event, now_ns):
                case EventUse.PASS:
                    out += event
                case EventUse.END:
                    self._last = event
        if out:
            self._note_first_token(now_ns)
        return out

    def _note_first_token(self, now_ns: int) -> None:
        if self._ticket is not None and self._trace.timeline.chunks:
            self._ticket.first_token(now_ns)

    def _split(self, piece: bytes) -> list[bytes]:
        try:
            return self._splitter.feed(piece)
        except sse.EventTooLargeError:
            raise too_large_an_answer() from None

    def _read_event(self, event: bytes, now_ns: int) -> EventUse:
        data = sse.event_data(event)
        if not data:
            return EventUse.DROP  # a comment: padding of the sealed hop
        try:
            return self._call.reader.read_event(data, self._trace.facts, now_ns=now_ns)
        except MALFORMED:
            raise GatewayError("upstream_error", "The worker's event is malformed.") from None

    async def _read_whole(self) -> bytes:
        async with aclosing(self._begun().content()) as content:
            return await read_bounded(content, MAX_ANSWER_BYTES, error=too_large_an_answer())

    def _begun(self) -> SealedExchange:
        if self._sealed is None:
            raise truncated()
        return self._sealed

    async def _is_alive(self, node: WorkerNode, silence: timedelta) -> bool:
        """Whether a worker that sent nothing for so long may wait as long as it likes.

        The head of a stream comes as soon as a request is accepted, so a worker that keeps it
        back is stuck. For anything else it may, if it still attests.
        """
        if self._sealed is None and self._call.is_streamed:
            return False
        relay = self._relay
        return await relay.directory.is_alive(node, since=relay.utc_now() - silence)

    def _give_up(self, node: WorkerNode) -> None:
        self._relay.directory.distrust(node, self._ticket)
        self._deadline.interrupt(unanswered())

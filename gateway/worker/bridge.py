"""How do coroutines and the engine's thread talk?  Two queues, one wake-up per step.

The engine is synchronous and touched by one thread only, the one that runs here. Commands go in
through a thread-safe queue; what a step produced comes back with one ``call_soon_threadsafe``. The
text of its tokens is made on the loop, as all that follows. Where a core is left for the loop, the
next step is computed meanwhile, without the GIL. Where kernels take every core, the engine's thread
waits until the loop has passed everything on [docs/decisions/0011]: a kernel thread that is put off
its core in the middle of a step holds up all the others, and a token waited for a core for up to
4 ms.
A reader that falls behind never blocks the engine: its queue is bounded, and at the bound its
request is aborted. Inside, every request has a number of its own: what the engine still says of one
that was left can never reach another, whatever ids clients choose.
"""

import asyncio
import itertools
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Final, Protocol, TypeAlias

from gateway.faults import describe_fault
from gateway.problems import GatewayError
from gateway.worker.generation import Accepted, Event, Generation
from runtime import Advance, GenerationRequest, RequestRejected

_log = logging.getLogger(__name__)

MAX_PENDING_DELTAS: Final = 1024  # of one stream; about 20 s of output at 50 tokens/s
_JOIN_TIMEOUT_S: Final = 30.0


class SteppedEngine(Protocol):
    """The part of runtime.Engine that the bridge drives."""

    def add(self, request: GenerationRequest) -> None: ...

    def abort(self, request_id: str) -> None: ...

    def has_work(self) -> bool: ...

    def advance(self) -> list[Advance]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Add:
    request: GenerationRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class _Abort:
    request_id: str


@dataclass(frozen=True, slots=True)
class _Stop:
    pass


_Command: TypeAlias = _Add | _Abort | _Stop
_Outbox: TypeAlias = list[tuple[str, Event | Advance]]


class EngineBridge:
    """Owns the engine and its thread; every method is called on the event loop."""

    def __init__(
        self,
        engine: SteppedEngine,
        *,
        loop: asyncio.AbstractEventLoop,
        max_pending_deltas: int = MAX_PENDING_DELTAS,
        max_yield_s: float = 0.0,
    ) -> None:
        """`max_yield_s` bounds how long each step lets the loop pass on what the last one gave."""
        self._engine = engine
        self._loop = loop
        self._max_pending = max_pending_deltas
        self._max_yield_s = max_yield_s
        self._gate = threading.Lock()  # open when the loop has passed on what the last step gave
        self._inbox: SimpleQueue[_Command] = SimpleQueue()
        self._open: dict[str, Generation] = {}  # by number
        self._numbers = itertools.count()
        self._idle = asyncio.Event()
        self._idle.set()
        self._refusal: GatewayError | None = None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    @property
    def num_open(self) -> int:
        return len(self._open)

    def start(self) -> None:
        self._thread.start()

    def generate(self, request: GenerationRequest) -> Generation:
        number = str(next(self._numbers))
        return Generation(self, request, number=number, max_pending=self._max_pending)

    def submit(self, generation: Generation, request: GenerationRequest) -> None:
        """Raises: GatewayError `server_stopping` once draining has begun, `duplicate_request_id`
        while the client's id is in use.
        """
        if self._refusal is not None:
            raise self._refusal
        if any(generation.request_id == other.request_id for other in self._open.values()):
            raise GatewayError("duplicate_request_id", "A request with this id is running.")
        self._open[request.request_id] = generation
        self._idle.clear()
        self._inbox.put(_Add(request=request))

    def release(self, request_id: str, *, abort: bool) -> None:
        """Forget a request; with `abort`, the engine frees its blocks before the next step."""
        if self._open.pop(request_id, None) is None:
            return
        if abort:
            self._inbox.put(_Abort(request_id=request_id))
        if not self._open:
            self._idle.set()

    async def drain(self, drain_s: float) -> None:
        """Refuse new requests; those running finish within `drain_s` or fail."""
        self._refusal = GatewayError("server_stopping", "The server is stopping.")
        try:
            async with asyncio.timeout(drain_s):
                await self._idle.wait()
        except TimeoutError:
            _log.warning("stopping with requests unfinished", extra={"open": len(self._open)})
            for request_id, generation in tuple(self._open.items()):
                generation.deliver(self._refusal)
                self._inbox.put(_Abort(request_id=request_id))

    async def stop(self) -> None:
        """Ends the thread after the step it is in."""
        self._inbox.put(_Stop())
        await asyncio.to_thread(self._thread.join, _JOIN_TIMEOUT_S)

    def _deliver(self, outbox: _Outbox) -> None:
        for request_id, item in outbox:
            generation = self._open.get(request_id)
            if generation is None:
                continue
            event = _settled(item) if isinstance(item, Advance) else item
            is_broken = event is not item and isinstance(event, GatewayError)
            if not generation.deliver(event) or is_broken:
                self.release(request_id, abort=True)
        if self._max_yield_s:
            self._loop.call_soon(self._open_gate)  # after the readers that were just woken

    def _open_gate(self) -> None:
        if self._gate.locked():
            self._gate.release()

    # -- the engine's thread ---------------------------------------------------------------

    def _run(self) -> None:
        running: set[str] = set()
        while True:
            outbox: _Outbox = []
            commands = self._take(block=not (running and self._engine.has_work()))
            if any(isinstance(command, _Stop) for command in commands):
                return
            for command in commands:
                self._apply(command, running, outbox)
            if self._engine.has_work():  # also without requests: aborted ones leave a report
                outbox.extend(self._step(running))
            if outbox:
                self._hand_over(self._deliver, outbox)

    def _take(self, *, block: bool) -> Sequence[_Command]:
        commands = [self._inbox.get()] if block else []
        for _ in itertools.repeat(None):
            try:
                commands.append(self._inbox.get_nowait())
            except Empty:
                break
        return commands

    def _apply(self, command: _Command, running: set[str], outbox: _Outbox) -> None:
        if isinstance(command, _Abort):
            running.discard(command.request_id)
            self._engine.abort(command.request_id)
        elif isinstance(command, _Add):
            request_id = command.request.request_id
            try:
                self._engine.add(command.request)
            except RequestRejected as err:
                outbox.append((request_id, _as_gateway_error(err)))
            except Exception as err:  # the thread's edge: one bad request must not end the worker
                _log.error("engine refused a request: %s", describe_fault(err))
                outbox.append((request_id, _engine_failed()))
            else:
                running.add(request_id)
                outbox.append((request_id, Accepted()))

    def _step(self, running: set[str]) -> _Outbox:
        try:
            advances = self._engine.advance()
        except Exception as err:  # the thread's edge: one bad step must not end the worker
            _log.error("engine step failed, its requests fail: %s", describe_fault(err))
            return self._fail_all(running)
        running.difference_update(a.request_id for a in advances if a.finish_reason is not None)
        return [(advance.request_id, advance) for advance in advances]

    def _fail_all(self, running: set[str]) -> _Outbox:
        failed = tuple(running)
        for request_id in failed:
            self._engine.abort(request_id)
        running.clear()
        return [(request_id, _engine_failed()) for request_id in failed]

    def _hand_over(self, callback: Callable[[_Outbox], None], outbox: _Outbox) -> None:
        if self._loop.is_closed():
            return
        self._gate.acquire(blocking=False)  # shut, if it is not
        self._loop.call_soon_threadsafe(callback, outbox)
        if self._max_yield_s:
            self._gate.acquire(timeout=self._max_yield_s)


def _settled(advance: Advance) -> Event:
    try:
        return advance.delta()
    except Exception as err:  # one bad text must not keep the others of its step from their readers
        _log.error("text of a token failed: %s", describe_fault(err))
        return _engine_failed()


def _engine_failed() -> GatewayError:
    return GatewayError("generation_failed", "The engine failed while generating.")


def _as_gateway_error(err: RequestRejected) -> GatewayError:
    return GatewayError(err.code, str(err), param=err.param)

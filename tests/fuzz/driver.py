"""Does a parser survive what it was never meant to get?  Many damaged inputs, one after another.

A parser may return or raise one of our errors. Failures, each with the input that caused it, are
another exception, an input that takes longer than ``MAX_CPU_S`` of processor time or ``MAX_WAIT_S``
by the clock, memory that grows by more than ``MAX_GROWTH_BYTES``, and the death of the process. The
same seed gives the same inputs.
"""

import mmap
import os
import random
import resource
import signal
import struct
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from attestation.channel.errors import ChannelError
from attestation.errors import AttestationError
from gateway.http1 import MalformedResponse
from gateway.problems import GatewayError
from runtime.errors import ModelFileError
from tests.fuzz.damage import Mutator

MAX_CPU_S = 2.0  # not by the clock: on a busy machine a good parser may stand still that long
MAX_WAIT_S = 60.0
MAX_GROWTH_BYTES = 50 * 1024 * 1024
OUR_ERRORS = (AttestationError, ChannelError, GatewayError, MalformedResponse, ModelFileError)
_PROGRESS_EVERY = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A parser, good inputs for it, and how to damage them."""

    name: str
    parse: Callable[[bytes], object]
    seeds: Sequence[bytes]
    mutate: Mutator


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What went wrong, and with which input."""

    target: str
    index: int
    data: bytes
    problem: str

    def save(self, folder: Path) -> Path:
        """Writes the input and says where."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.target}-{self.index}.bin"
        path.write_bytes(self.data)
        return path


class TooSlow(BaseException):
    """Raised by the alarm; not an Exception, so that no parser takes it for a refusal."""


def make_input(target: Target, *, seed: int, index: int) -> bytes:
    """Input number ``index``: a seed, damaged."""
    rng = random.Random(f"{seed}/{target.name}/{index}")
    data = rng.choice(target.seeds)
    return target.mutate(data, target.seeds, rng)


def try_input(target: Target, data: bytes) -> str | None:
    """The problem with this input, None when it was parsed or refused as it should be."""
    try:
        target.parse(data)
    except OUR_ERRORS:
        return None
    except TooSlow:
        return f"takes longer than {MAX_CPU_S} s of processor time or {MAX_WAIT_S} s"
    except Exception:
        return traceback.format_exc()  # whatever it is, it is the finding
    return None


def fuzz(
    target: Target,
    *,
    num_inputs: int,
    seed: int,
    on_progress: Callable[[int], None] = lambda done: None,
) -> Failure | None:
    """The first failure among ``num_inputs`` inputs, None without one.

    Warnings are errors here, but for one: ``cryptography`` warns of the length of a name in a
    certificate. It is said once and holds nothing of the name; to hide it would take a switch that
    all threads share.
    """
    with _alarms(), warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="Attribute's length must be")
        for data in target.seeds:
            if problem := try_input(target, data):
                return Failure(target=target.name, index=-1, data=data, problem=problem)
        allowed_bytes = _peak_bytes() + MAX_GROWTH_BYTES
        for index in range(num_inputs):
            on_progress(index)
            data = make_input(target, seed=seed, index=index)
            _set_alarms(MAX_CPU_S, MAX_WAIT_S)
            problem = try_input(target, data)
            _set_alarms(0, 0)
            if problem is None and _peak_bytes() > allowed_bytes:
                problem = f"peak memory grew by more than {MAX_GROWTH_BYTES >> 20} MB"
            if problem is not None:
                return Failure(target=target.name, index=index, data=data, problem=problem)
    return None


def fuzz_apart(
    target: Target, *, num_inputs: int, seed: int, show: Callable[[str], None]
) -> Failure | None:
    """``fuzz`` in a child process, so that a crash of native code is a failure as any other."""
    shared = mmap.mmap(-1, 8)
    started = time.monotonic()

    def note(index: int) -> None:
        struct.pack_into("<q", shared, 0, index)
        if index % _PROGRESS_EVERY == 0 and index:
            rate = index / (time.monotonic() - started)
            show(f"{target.name:24}{index:>9} of {num_inputs}, {rate:,.0f}/s")

    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        status = 1
        try:
            failure = fuzz(target, num_inputs=num_inputs, seed=seed, on_progress=note)
            if failure is not None:
                os.write(writing, f"{failure.index}\n{failure.problem[-4000:]}".encode())
            status = 0
        except BaseException:
            traceback.print_exc()  # of the driver or a mutator; the process ends here
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    _, status = os.waitpid(pid, 0)
    if status == 0 and not told:
        return None
    if told:
        number, _, problem = told.partition("\n")
        index = int(number)
    else:
        index, problem = struct.unpack_from("<q", shared)[0], f"the process died: {status}"
    data = b"" if index < 0 else make_input(target, seed=seed, index=index)
    return Failure(target=target.name, index=index, data=data, problem=problem)


@contextmanager
def _alarms() -> Iterator[None]:
    def ring(signum: int, frame: FrameType | None) -> None:
        raise TooSlow

    numbers = (signal.SIGPROF, signal.SIGALRM)
    previous = [signal.signal(number, ring) for number in numbers]
    try:
        yield
    finally:
        _set_alarms(0, 0)
        for number, handler in zip(numbers, previous, strict=True):
            signal.signal(number, handler)


def _set_alarms(cpu_s: float, wait_s: float) -> None:
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    signal.setitimer(signal.ITIMER_REAL, wait_s)


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

"""How does the engine in this process answer the cases of `serving`, and in how much memory?"""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from runtime.bench.driver import run_jobs
from runtime.bench.engines import EngineChoice, LoadedForBench, new_engine
from runtime.bench.load import Job, LoadRun
from runtime.bench.machine import pss_bytes

_SAMPLE_S = 0.5


class EngineTarget:
    """One engine over all runs, as a server has."""

    def __init__(
        self,
        loaded: LoadedForBench,
        choice: EngineChoice,
        *,
        kv_tokens: int,
        as_chat: bool = False,
        name: str = "engine",
    ) -> None:
        """``as_chat``: each prompt is one user's message in the model's own template."""
        self.name = name
        self._tokenizer = loaded.tokenizer
        self._as_chat = as_chat
        runner = loaded.runner_for(kv_tokens)
        self._engine = new_engine(loaded, runner, max_batch_tokens=choice.max_batch_tokens)

    def run(self, jobs: Sequence[Job], *, concurrency: int) -> LoadRun:
        if self._as_chat:
            jobs = [self._in_template(job) for job in jobs]
        return run_jobs(self._engine, jobs, concurrency=concurrency)

    def _in_template(self, job: Job) -> Job:
        text = self._tokenizer.decode(job.prompt_token_ids)
        token_ids = self._tokenizer.encode_chat([{"role": "user", "content": text}])
        return replace(job, prompt_token_ids=tuple(token_ids))


class MemoryPeak:
    """The most that was seen; None where the system does not tell."""

    def __init__(self) -> None:
        self.pss_bytes: int | None = None


@contextmanager
def memory_watched(pid: int = 0) -> Iterator[MemoryPeak]:
    """Looks twice a second at the process ``pid`` (0: this one), until the block ends."""
    peak, ended = MemoryPeak(), threading.Event()

    def look() -> None:
        while True:
            seen = pss_bytes([pid or os.getpid()])
            if seen is not None:
                peak.pss_bytes = max(seen, peak.pss_bytes or 0)
            if ended.wait(_SAMPLE_S):
                return

    thread = threading.Thread(target=look, name="memory", daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        ended.set()
        thread.join()

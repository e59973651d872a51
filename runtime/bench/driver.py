"""How does a closed loop of streams drive an engine in this process?"""

import itertools
import time
from collections.abc import Sequence

from runtime.bench.load import Job, LoadRun, Record
from runtime.engine import Engine
from runtime.sampling import SamplingParams
from runtime.sequence import GenerationRequest


def run_jobs(
    engine: Engine, jobs: Sequence[Job], *, concurrency: int, cache_salt: bytes = b""
) -> LoadRun:
    """Send the jobs in order, ``concurrency`` at a time, and step until all have ended.

    A token's time is the end of the step that gave it, its text included. Greedy, EOS ignored.
    """
    records: dict[str, Record] = {}
    pending = list(reversed(jobs))
    num_running = num_tokens = 0
    numbers = itertools.count()
    started_s = time.perf_counter()
    while pending or num_running:
        while pending and num_running < concurrency:
            if num_running and num_tokens < pending[-1].after_tokens:
                break
            request = _request(next(numbers), pending.pop(), cache_salt)
            records[request.request_id] = Record(sent_s=time.perf_counter())
            engine.add(request)
            num_running += 1
        deltas = engine.step()
        now_s = time.perf_counter()
        for delta in deltas:
            record = records[delta.request_id]
            if delta.token_ids:
                record.chunk_s.append(now_s)
                record.output_tokens += len(delta.token_ids)
                num_tokens += len(delta.token_ids)
            if delta.finish_reason is not None:
                num_running -= 1
                _close(record, now_s, delta.finish_reason)
                if delta.timing is not None:
                    record.prompt_tokens = delta.timing.prompt_tokens
                    record.cached_tokens = delta.timing.cached_tokens
    return LoadRun(records=list(records.values()), wall_s=time.perf_counter() - started_s)


def _request(number: int, job: Job, cache_salt: bytes) -> GenerationRequest:
    return GenerationRequest(
        request_id=f"bench-{number}",
        prompt_token_ids=job.prompt_token_ids,
        sampling=SamplingParams(max_tokens=job.max_tokens, temperature=0.0, ignore_eos=True),
        arrival_ns=time.perf_counter_ns(),
        cache_salt=cache_salt,
    )


def _close(record: Record, now_s: float, reason: str) -> None:
    record.ended_s = now_s
    if reason != "length":
        record.error = f"ended with {reason}"

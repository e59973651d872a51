"""What do many streams at once get?  The cases that a server is judged by, over any target.

A target is the engine in this process or a server behind HTTP; both see the same prompts. Prompts
are never repeated, so a prefix is known to the target only where a case has sent it before. A first
round is not counted: whoever has just started has yet to learn what its steps take.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from runtime.bench.load import Job, LoadRun, gaps_within, latency_cells, output_tokens_per_s
from runtime.bench.prompts import Prompts
from runtime.bench.report import NotMeasurable, Row, rounded, speed_row
from runtime.bench.summary import quantile

_MIN_ARRIVAL_GAPS = 8


class Target(Protocol):
    """Whoever answers."""

    name: str

    def run(self, jobs: Sequence[Job], *, concurrency: int) -> LoadRun: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Of the cases; the defaults are those of the published peer measurements."""

    streams: int = 32
    requests: int = 64
    prompt: int = 256
    output: int = 64
    prefix: int = 1024
    prefix_streams: int = 8
    prefix_requests: int = 32
    prefix_tail: int = 64
    arriving: int = 2048
    arriving_streams: int = 8
    arriving_context: int = 128
    arriving_output: int = 160

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence of any case."""
        return max(
            self.prompt + self.output,
            self.prefix + self.prefix_tail + self.output,
            self.arriving + 1,
            self.arriving_context + self.arriving_output,
        )


Case = Callable[[Sequence[Target], Prompts, Sizes, int], list[Row]]


def measure_streams(
    targets: Sequence[Target], prompts: Prompts, sizes: Sizes, repeat: int
) -> list[Row]:
    """Distinct prompts in a closed loop; a row per target, which take turns with one set each."""
    runs: dict[str, list[LoadRun]] = {target.name: [] for target in targets}
    for _ in range(1 + repeat):
        jobs = [
            Job(prompt_token_ids=prompts.take(sizes.prompt), max_tokens=sizes.output)
            for _ in range(sizes.requests)
        ]
        for target in targets:
            runs[target.name].append(_complete(target, jobs, sizes.streams))
    return [_row(f"{sizes.streams} streams", name, found[1:]) for name, found in runs.items()]


def measure_shared(
    targets: Sequence[Target], prompts: Prompts, sizes: Sizes, repeat: int
) -> list[Row]:
    """A prefix that all prompts of a round share, first new to the target and then known."""
    cold: dict[str, list[LoadRun]] = {target.name: [] for target in targets}
    warm: dict[str, list[LoadRun]] = {target.name: [] for target in targets}
    for _ in range(1 + repeat):
        prefix = prompts.take(sizes.prefix)
        first, second = (_shared_jobs(prefix, prompts, sizes) for _ in range(2))
        for target in targets:
            cold[target.name].append(_complete(target, first, sizes.prefix_streams))
            warm[target.name].append(_complete(target, second, sizes.prefix_streams))
    return [
        _row(f"shared prefix, {state}", name, found[1:])
        for state, by_target in (("cold", cold), ("warm", warm))
        for name, found in by_target.items()
    ]


def measure_arrival(
    targets: Sequence[Target], prompts: Prompts, sizes: Sizes, repeat: int
) -> list[Row]:
    """Running streams, and a long prompt that arrives: by how much do their gaps grow?"""
    runs: dict[str, list[LoadRun]] = {target.name: [] for target in targets}
    for _ in range(1 + repeat):
        jobs = _arrival_jobs(prompts, sizes)
        for target in targets:
            runs[target.name].append(_complete(target, jobs, len(jobs)))
    return [_arrival_row(name, found[1:]) for name, found in runs.items()]


CASES: Mapping[str, Case] = {
    "streams": measure_streams,
    "shared": measure_shared,
    "arrival": measure_arrival,
}


def _shared_jobs(prefix: tuple[int, ...], prompts: Prompts, sizes: Sizes) -> list[Job]:
    return [
        Job(prompt_token_ids=prefix + prompts.take(sizes.prefix_tail), max_tokens=sizes.output)
        for _ in range(sizes.prefix_requests)
    ]


def _arrival_jobs(prompts: Prompts, sizes: Sizes) -> list[Job]:
    """The long prompt is last; it comes when a quarter of the streams' tokens have come."""
    streams = [
        Job(
            prompt_token_ids=prompts.take(sizes.arriving_context),
            max_tokens=sizes.arriving_output,
        )
        for _ in range(sizes.arriving_streams)
    ]
    after = sizes.arriving_streams * sizes.arriving_output // 4
    arriving = Job(prompt_token_ids=prompts.take(sizes.arriving), max_tokens=1, after_tokens=after)
    return [*streams, arriving]


def _arrival_row(name: str, runs: Sequence[LoadRun]) -> Row:
    before: list[float] = []
    during: list[float] = []
    for run in runs:
        *streams, arriving = run.records
        started = max(record.chunk_s[0] for record in streams)
        for record in streams:
            before += gaps_within(record, started, arriving.sent_s)
            during += gaps_within(record, arriving.sent_s, arriving.chunk_s[0])
    if len(before) < _MIN_ARRIVAL_GAPS or len(during) < _MIN_ARRIVAL_GAPS:
        raise NotMeasurable("the running streams ended before the long prompt was read")
    usual, worst = quantile(before, 0.5), quantile(during, 0.99)
    return speed_row(
        "arrival",
        [output_tokens_per_s(run) for run in runs],
        target=name,
        itl_p50_before_ms=rounded(usual * 1e3),
        itl_p50_during_ms=rounded(quantile(during, 0.5) * 1e3),
        itl_p99_during_ms=rounded(worst * 1e3),
        p99_of_p50_ratio=rounded(worst / usual),
        arriving_ttft_p50_ms=rounded(quantile([r.records[-1].ttft_s for r in runs], 0.5) * 1e3),
    )


def _row(name: str, target: str, runs: Sequence[LoadRun]) -> Row:
    speeds = [output_tokens_per_s(run) for run in runs]
    return speed_row(name, speeds, target=target, **latency_cells(runs))


def _complete(target: Target, jobs: Sequence[Job], concurrency: int) -> LoadRun:
    run = target.run(jobs, concurrency=concurrency)
    run.require_complete()
    return run

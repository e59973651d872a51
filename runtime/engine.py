"""How does a stream of requests become a stream of text?  One thread, one step at a time.

A step asks the Scheduler for a plan, the Runner for logits, the sampler for one token per sequence
that is due, and turns those into text. Nothing here is thread-safe, sleeps or reads a clock of its
own: whoever owns the thread calls ``step`` while ``has_work``.
"""

import logging
from collections.abc import Callable
from collections.abc import Sequence as Rows
from dataclasses import dataclass, field
from traceback import extract_tb

from runtime.config import EngineConfig
from runtime.errors import (
    DuplicateRequest,
    EngineFull,
    InvalidConfig,
    InvalidPrompt,
    InvariantBroken,
    PromptTooLong,
)
from runtime.interfaces import LogitsT, Runner, TextTokenizer, TokenSampler
from runtime.observer import EngineObserver, StepStats
from runtime.output import OutputText
from runtime.plan import StepPlan
from runtime.sampler import SampleRow
from runtime.scheduler import ScheduledStep, Scheduler
from runtime.sequence import FinishReason, GenerationRequest, Sequence, SequenceTiming

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """What one step added to one request.

    ``text`` may be empty, when it ends inside a character or in what may become a stop string;
    joined over all deltas it is the output. ``timing`` comes with ``finish_reason``, last.
    """

    request_id: str
    token_ids: tuple[int, ...] = field(repr=False)
    text: str = field(repr=False)
    finish_reason: FinishReason | None = None
    timing: SequenceTiming | None = None


@dataclass(slots=True, kw_only=True)
class _Live:
    sequence: Sequence
    output: OutputText


class Engine:
    """Requests in, deltas out. Owned by one thread."""

    def __init__(
        self,
        *,
        runner: Runner[LogitsT],
        sampler: TokenSampler[LogitsT],
        tokenizer: TextTokenizer,
        config: EngineConfig,
        observer: EngineObserver,
        clock_ns: Callable[[], int],
        fresh_seed: Callable[[], int],
    ) -> None:
        """``clock_ns`` is monotonic; ``fresh_seed`` gives each request that brings none a seed.

        Raises: InvalidConfig when the runner's KV cache is not the one configured.
        """
        if (runner.num_blocks, runner.block_size) != (config.num_blocks, config.block_size):
            raise InvalidConfig(
                f"the runner has {runner.num_blocks} blocks of {runner.block_size} tokens, "
                f"the engine is configured for {config.num_blocks} of {config.block_size}"
            )

        def run_and_sample(plan: StepPlan, rows: Rows[SampleRow]) -> list[int]:
            logits = runner.run(plan)
            return sampler.sample(logits, rows) if rows else []

        self._run_and_sample = run_and_sample
        self._tokenizer = tokenizer
        self._vocab_size = runner.vocab_size
        self._config = config
        self._observer = observer
        self._clock_ns = clock_ns
        self._fresh_seed = fresh_seed
        self._scheduler = Scheduler(config)
        self._live: dict[str, _Live] = {}
        self._unreported: list[Delta] = []  # of requests that ended between steps
        self._num_steps = 0
        self.max_context_tokens = min(
            runner.max_context_tokens, config.num_blocks * config.block_size
        )

    def add(self, request: GenerationRequest) -> None:
        """Queue a request; its deltas come from ``step``.

        Raises: DuplicateRequest, InvalidPrompt (a token id outside the vocabulary), PromptTooLong
        (no room for one more token, ever), EngineFull (not now).
        """
        num_tokens = len(request.prompt_token_ids)
        if request.request_id in self._live:
            raise DuplicateRequest("a request with this id is in the engine")
        if num_tokens >= self.max_context_tokens:
            raise PromptTooLong(
                f"the prompt has {num_tokens} tokens; prompt and output together may have "
                f"{self.max_context_tokens}",
                param="messages",
            )
        if not all(0 <= token_id < self._vocab_size for token_id in request.prompt_token_ids):
            raise InvalidPrompt("the prompt has an unknown token id", param="messages")
        if self._scheduler.num_waiting >= self._config.max_waiting:
            raise EngineFull(f"{self._config.max_waiting} requests are waiting already")
        seed = request.sampling.seed
        sequence = Sequence(
            request,
            rng_seed=self._fresh_seed() if seed is None else seed,
            max_output_tokens=min(
                request.sampling.max_tokens, self.max_context_tokens - num_tokens
            ),
        )
        output = OutputText(
            request.sampling,
            detokenizer=self._tokenizer.detokenizer(),
            eos_token_ids=self._tokenizer.eos_token_ids,
        )
        self._live[request.request_id] = _Live(sequence=sequence, output=output)
        self._scheduler.add(sequence)

    def abort(self, request_id: str) -> None:
        """End a request now and free its blocks; nothing happens if it is not in the engine.

        The next ``step`` reports it with finish reason ``"abort"``.
        """
        if request_id in self._live:
            self._unreported.append(self._finish(request_id, "abort", now_ns=self._clock_ns()))

    def has_work(self) -> bool:
        return bool(self._live or self._unreported)

    def step(self) -> list[Delta]:
        """Advance by one batch; a delta for every request that got a token or ended.

        A failure of the runner or the sampler ends the requests of this batch with finish reason
        ``"error"`` and no others.
        """
        started_ns = self._clock_ns()
        deltas, self._unreported = self._unreported, []
        step = self._scheduler.schedule()
        if step is None:
            return deltas
        for row in step.rows:
            if row.sequence.first_scheduled_ns is None:
                row.sequence.first_scheduled_ns = started_ns
        error_type: str | None = None
        try:
            token_ids = self._next_token_ids(step)
        except Exception as err:  # the runner is a boundary: one bad batch must not stop the rest
            error_type = type(err).__name__
            ended_ns = self._clock_ns()
            # The message may quote a prompt, the place cannot.
            frame = extract_tb(err.__traceback__)[-1]
            where = f"{frame.filename}:{frame.lineno}"
            logger.error("batch failed", extra={"error_type": error_type, "where": where})
            new_deltas = [
                self._finish(row.sequence.request.request_id, "error", now_ns=ended_ns)
                for row in step.rows
            ]
        else:
            ended_ns = self._clock_ns()
            self._scheduler.commit(
                step,
                [(token_id,) for token_id in token_ids],
                step_s=(ended_ns - started_ns) / 1e9,
            )
            new_deltas = [
                self._append(row.sequence, token_id, now_ns=ended_ns)
                for row, token_id in zip(step.sampled, token_ids, strict=True)
            ]
        self._report(step, new_deltas, started_ns, ended_ns, error_type)
        return deltas + new_deltas

    def _next_token_ids(self, step: ScheduledStep) -> list[int]:
        rows = [
            SampleRow(
                params=row.sequence.request.sampling,
                rng_seed=row.sequence.rng_seed,
                step=row.sequence.num_output_tokens,
            )
            for row in step.sampled
        ]
        token_ids = self._run_and_sample(step.plan, rows)
        if len(token_ids) != len(rows):
            raise InvariantBroken(f"sampled {len(token_ids)} tokens for {len(rows)} sequences")
        if not all(0 <= token_id < self._vocab_size for token_id in token_ids):
            raise InvariantBroken("sampled a token outside the vocabulary")
        return token_ids

    def _append(self, sequence: Sequence, token_id: int, *, now_ns: int) -> Delta:
        request_id = sequence.request.request_id
        if sequence.first_token_ns is None:
            sequence.first_token_ns = now_ns
        is_last = sequence.num_output_tokens >= sequence.max_output_tokens
        text, reason = self._live[request_id].output.push(token_id, is_last=is_last)
        if reason is None:
            return Delta(request_id=request_id, token_ids=(token_id,), text=text)
        return self._finish(request_id, reason, now_ns=now_ns, token_ids=(token_id,), text=text)

    def _finish(
        self,
        request_id: str,
        reason: FinishReason,
        *,
        now_ns: int,
        token_ids: tuple[int, ...] = (),
        text: str = "",
    ) -> Delta:
        sequence = self._live.pop(request_id).sequence
        self._scheduler.finish(sequence)
        return Delta(
            request_id=request_id,
            token_ids=token_ids,
            text=text,
            finish_reason=reason,
            timing=sequence.timing(finished_ns=now_ns),
        )

    def _report(
        self,
        step: ScheduledStep,
        deltas: list[Delta],
        started_ns: int,
        ended_ns: int,
        error_type: str | None,
    ) -> None:
        pool = self._scheduler.kv.pool
        self._num_steps += 1
        self._observer.on_step(
            StepStats(
                step_idx=self._num_steps - 1,
                started_ns=started_ns,
                ended_ns=ended_ns,
                num_batch_tokens=step.plan.num_tokens,
                num_batch_sequences=step.plan.num_sequences,
                num_sampled_tokens=0 if error_type else len(step.sampled),
                num_preempted=step.num_preempted,
                num_finished=sum(delta.finish_reason is not None for delta in deltas),
                num_running=self._scheduler.num_running,
                num_waiting=self._scheduler.num_waiting,
                num_free_blocks=pool.num_free,
                num_cached_blocks=pool.num_cached,
                num_used_blocks=pool.num_used,
                error_type=error_type,
                schedule=step.stats,
            )
        )

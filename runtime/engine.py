"""How does a stream of requests become a stream of text?  One thread, one step at a time.

A step asks the Scheduler for a plan, the Runner for logits, the sampler for one token per sequence
that is due, and turns those into text. Nothing here is thread-safe, sleeps or reads a clock of its
own: whoever owns the thread calls ``step`` while ``has_work``.
"""

from collections.abc import Callable

from runtime.choice import Chooser
from runtime.config import EngineConfig
from runtime.errors import (
    DuplicateRequest,
    EngineFull,
    InvalidConfig,
    InvalidGrammar,
    InvalidPrompt,
    InvalidSampling,
    PromptTooLong,
)
from runtime.grammar import GrammarCompiler, GrammarState
from runtime.interfaces import LogitsT, Runner, TextTokenizer, TokenSampler
from runtime.live import Advance, Delta, Live
from runtime.logits import TokenHistory
from runtime.ngram import NgramProposer
from runtime.observer import EngineObserver, StepStats
from runtime.output import OutputText
from runtime.sampling import SamplingParams
from runtime.scheduler import ScheduledStep, Scheduler
from runtime.sequence import GenerationRequest, Sequence, SequenceStatus
from runtime.settling import Settler, StepResult, log_failure
from runtime.speculation import Proposer, Speculator


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
        grammars: GrammarCompiler | None = None,
        proposer: Proposer | None = None,
    ) -> None:
        """``clock_ns`` is monotonic; ``fresh_seed`` gives each request that brings none a seed.

        Without ``grammars`` a request with one is refused. ``proposer`` is prompt lookup unless
        told; it is asked when ``config.max_draft_tokens`` allows drafts.

        Raises: InvalidConfig when the runner is not the one configured.
        """
        _require_fit(runner, config)
        self._choose = Chooser(
            runner, sampler, clock_ns=clock_ns, itl_target_s=config.itl_target_s
        ).choose
        self._tokenizer = tokenizer
        self._vocab_size = runner.vocab_size
        self._config = config
        self._observer = observer
        self._clock_ns = clock_ns
        self._fresh_seed = fresh_seed
        self._has_bulk = getattr(runner, "has_bulk", False)
        self._grammars = grammars
        self._speculator = Speculator(
            proposer or NgramProposer(),
            max_drafts=config.max_draft_tokens,
            max_rows=config.max_draft_rows,
        )
        self._scheduler = Scheduler(config)
        self._live: dict[str, Live] = {}
        self._settler = Settler(self._scheduler, self._speculator, self._live)
        self._unreported: list[Advance] = []  # of requests that ended between steps
        self._num_steps = 0
        self.max_context_tokens = min(
            runner.max_context_tokens, config.num_blocks * config.block_size
        )

    def add(self, request: GenerationRequest) -> None:
        """Queue a request; its deltas come from ``step``.

        Raises: DuplicateRequest, InvalidPrompt (a token id outside the vocabulary), PromptTooLong
        (no room for one more token, ever), EngineFull (not now), InvalidSampling (a bias of such a
        token), InvalidGrammar.
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
        if not self._scheduler.has_room(request.tenant):
            raise EngineFull(f"{self._scheduler.num_waiting} requests are waiting already")
        if any(token_id >= self._vocab_size for token_id in request.sampling.logit_bias):
            raise InvalidSampling("logit_bias has an unknown token id", param="logit_bias")
        live = self._make_live(request)
        self._live[request.request_id] = live
        self._scheduler.add(live.sequence)

    def abort(self, request_id: str) -> None:
        """End a request now and free its blocks; nothing happens if it is not in the engine.

        The next ``step`` reports it with finish reason ``"abort"``.
        """
        if request_id in self._live:
            self._unreported.append(
                self._settler.finish(request_id, "abort", now_ns=self._clock_ns())
            )

    def has_work(self) -> bool:
        return bool(self._live or self._unreported)

    def step(self) -> list[Delta]:
        """Advance by one batch; a delta for every request that got tokens or ended.

        A failure of the runner or the sampler ends the requests of this batch with finish reason
        ``"error"`` and no others, a grammar's its own request with ``"grammar_failed"``.
        """
        return [advance.delta() for advance in self.advance()]

    def advance(self) -> list[Advance]:
        """As ``step``, but leaves the text to whoever gets it, who can make it during the next."""
        started_ns = self._clock_ns()
        advances, self._unreported = self._unreported, []
        self._propose_drafts()
        step = self._scheduler.schedule()
        if step is None:
            return advances
        for row in step.rows:
            if row.sequence.first_scheduled_ns is None:
                row.sequence.first_scheduled_ns = started_ns
        lives = [self._live[row.sequence.request.request_id] for row in step.sampled]
        grammar_ns = 0
        try:
            choice = self._choose(step, lives)
        except Exception as err:  # the runner is a boundary: one bad batch must not stop the rest
            ended_ns = self._clock_ns()
            result = self._settler.fail(step, err, now_ns=ended_ns)
        else:
            ended_ns, grammar_ns = self._clock_ns(), choice.grammar_ns
            step_s = (ended_ns - started_ns) / 1e9
            result = self._settler.commit(
                step, lives, choice.chosen, step_s=step_s, now_ns=ended_ns
            )
        self._report(step, result, started_ns, ended_ns, grammar_ns)
        return advances + result.advances

    def _make_live(self, request: GenerationRequest) -> Live:
        sampling, num_tokens = request.sampling, len(request.prompt_token_ids)
        seed = self._fresh_seed() if sampling.seed is None else sampling.seed
        return Live(
            sequence=Sequence(
                request,
                rng_seed=seed,
                max_output_tokens=min(sampling.max_tokens, self.max_context_tokens - num_tokens),
                is_batch_invariant=self._is_invariant(sampling),
            ),
            output=OutputText(
                sampling,
                detokenizer=self._tokenizer.detokenizer(),
                eos_token_ids=self._tokenizer.eos_token_ids,
            ),
            grammar=self._compiled(request),
            history=TokenHistory(request.prompt_token_ids) if sampling.has_penalties else None,
        )

    def _is_invariant(self, sampling: SamplingParams) -> bool:
        return not self._has_bulk or self._config.batch_invariant or sampling.seed is not None

    def _compiled(self, request: GenerationRequest) -> GrammarState | None:
        if request.grammar is None:
            return None
        if self._grammars is None:
            raise InvalidGrammar("this engine has no grammars")
        return self._grammars.compile(request.grammar)

    def _propose_drafts(self) -> None:
        """Guesses for what decodes next, where there are few enough to afford them."""
        config = self._config
        if not config.max_draft_tokens or 2 * self._scheduler.num_running > config.max_draft_rows:
            return
        decoding = [
            live
            for live in self._live.values()
            if live.sequence.status is SequenceStatus.RUNNING
            and live.sequence.num_uncomputed_tokens == 1
        ]
        try:
            self._speculator.propose(decoding)
        except Exception as err:  # a proposer is a guest: the batch does without it
            log_failure("no drafts", err)

    def _report(
        self,
        step: ScheduledStep,
        result: StepResult,
        started_ns: int,
        ended_ns: int,
        grammar_ns: int,
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
                num_sampled_tokens=result.num_sampled,
                num_drafted_tokens=result.num_drafted,
                num_accepted_tokens=result.num_accepted,
                grammar_ns=grammar_ns,
                num_preempted=step.num_preempted,
                num_finished=sum(one.finish_reason is not None for one in result.advances),
                num_running=self._scheduler.num_running,
                num_waiting=self._scheduler.num_waiting,
                num_free_blocks=pool.num_free,
                num_cached_blocks=pool.num_cached,
                num_used_blocks=pool.num_used,
                error_type=result.error_type,
                schedule=step.stats,
            )
        )


def _require_fit(runner: Runner[LogitsT], config: EngineConfig) -> None:
    if (runner.num_blocks, runner.block_size) != (config.num_blocks, config.block_size):
        raise InvalidConfig(
            f"the runner has {runner.num_blocks} blocks of {runner.block_size} tokens, "
            f"the engine is configured for {config.num_blocks} of {config.block_size}"
        )
    if config.batch_invariant and not getattr(runner, "is_batch_invariant", False):
        raise InvalidConfig("the runner's logits depend on the batch; batch_invariant forbids it")

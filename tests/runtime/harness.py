"""An engine of fakes, what it gave, and what it must have given."""

from dataclasses import dataclass, field

from hypothesis import HealthCheck, settings

from runtime import (
    Delta,
    Engine,
    EngineConfig,
    FinishReason,
    GenerationRequest,
    SamplingParams,
    SequenceTiming,
    StepStats,
)
from runtime.speculation import Proposer
from tests.support.fake_runner import (
    EOS_TOKEN_ID,
    PIECES,
    FakeClock,
    FakeRunner,
    FakeSampler,
    FakeTokenizer,
    reference_tokens,
)

FRESH_SEED = 77
# Properties whose examples are quick, but not on a machine that is busy with something else.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@dataclass
class Outcome:
    token_ids: tuple[int, ...] = ()
    text: str = ""
    finish_reason: FinishReason | None = None
    timing: SequenceTiming | None = None

    def take(self, delta: Delta) -> None:
        assert self.finish_reason is None, "a delta after the last one"
        self.token_ids += delta.token_ids
        self.text += delta.text
        self.finish_reason = delta.finish_reason
        self.timing = delta.timing
        assert (delta.timing is None) == (delta.finish_reason is None)


@dataclass
class StatsLog:
    stats: list[StepStats] = field(default_factory=list)

    def on_step(self, stats: StepStats) -> None:
        self.stats.append(stats)


class Harness:
    """One engine with everything around it, driven by hand."""

    def __init__(
        self,
        config: EngineConfig,
        *,
        max_context_tokens: int = 10_000,
        proposer: Proposer | None = None,
        sampler: FakeSampler | None = None,
    ) -> None:
        self.config = config
        self.runner = FakeRunner(
            num_blocks=config.num_blocks,
            block_size=config.block_size,
            max_context_tokens=max_context_tokens,
        )
        self.log = StatsLog()
        self.engine = Engine(
            runner=self.runner,
            sampler=sampler or FakeSampler(),
            tokenizer=FakeTokenizer(),
            config=config,
            observer=self.log,
            clock_ns=FakeClock(),
            fresh_seed=lambda: FRESH_SEED,
            proposer=proposer,
        )
        self.outcomes: dict[str, Outcome] = {}

    def add(self, request: GenerationRequest) -> None:
        self.engine.add(request)
        self.outcomes[request.request_id] = Outcome()

    def step(self) -> list[Delta]:
        deltas = self.engine.step()
        for delta in deltas:
            self.outcomes[delta.request_id].take(delta)
        return deltas

    def drain(self, *, max_steps: int = 10_000) -> dict[str, Outcome]:
        for _ in range(max_steps):
            if not self.engine.has_work():
                return self.outcomes
            self.step()
        raise AssertionError(f"still working after {max_steps} steps")

    def expected(self, request: GenerationRequest) -> Outcome:
        """The same request run alone, without blocks, on the whole text at once."""
        sampling = request.sampling
        room = self.engine.max_context_tokens - len(request.prompt_token_ids)
        max_tokens = min(sampling.max_tokens, room)
        token_ids = reference_tokens(
            request.prompt_token_ids,
            sampling,
            rng_seed=FRESH_SEED if sampling.seed is None else sampling.seed,
            max_tokens=max_tokens,
        )
        for num_tokens in range(1, len(token_ids) + 1):
            text = "".join(PIECES[token_id] for token_id in token_ids[:num_tokens])
            if (cut := first_stop(text, sampling.stop)) is not None:
                return Outcome(tuple(token_ids[:num_tokens]), text[:cut], "stop")
        is_eos = token_ids[-1] == EOS_TOKEN_ID and not sampling.ignore_eos
        text = "".join(PIECES[token_id] for token_id in token_ids)
        return Outcome(tuple(token_ids), text, "stop" if is_eos else "length")


def first_stop(text: str, stops: tuple[str, ...]) -> int | None:
    """Where the output ends: read one character at a time, the longest stop string first."""
    for end in range(1, len(text) + 1):
        for stop in sorted(stops, key=len, reverse=True):
            if text[:end].endswith(stop):
                return end - len(stop)
    return None


def request(
    request_id: str,
    prompt: tuple[int, ...],
    *,
    sampling: SamplingParams | None = None,
    max_tokens: int = 8,
    salt: bytes = b"",
    arrival_ns: int = 0,
    priority: int = 0,
    tenant: str = "",
) -> GenerationRequest:
    """Greedy and blind to EOS unless ``sampling`` says otherwise: its length is known."""
    blind = SamplingParams(max_tokens=max_tokens, temperature=0, ignore_eos=True)
    return GenerationRequest(
        request_id=request_id,
        prompt_token_ids=prompt,
        sampling=sampling or blind,
        arrival_ns=arrival_ns,
        cache_salt=salt,
        priority=priority,
        tenant=tenant,
    )


def assert_same_output(got: Outcome, want: Outcome) -> None:
    assert (got.token_ids, got.text, got.finish_reason) == (
        want.token_ids,
        want.text,
        want.finish_reason,
    )

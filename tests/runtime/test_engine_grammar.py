"""Does an engine keep to its grammars, with drafts and without, and fail one request alone?"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
import torch

from runtime import Engine, EngineConfig, GenerationRequest, GrammarSpec, SamplingParams
from runtime.devices.registry import open_device
from runtime.errors import GrammarFailed, InvalidGrammar
from runtime.grammar import GrammarState, TokenMasks
from runtime.grammar_llguidance import LlguidanceCompiler
from runtime.model_runner import LoadedModel, ModelRunner, load_model
from runtime.sampler import Sampler
from tests.runtime.harness import FRESH_SEED, Harness, Outcome, StatsLog, request
from tests.support.fake_runner import FakeClock
from tests.support.tiny_model import write_tiny_gguf

SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"the user": {"type": "integer"}, "in": {"enum": ["ring", "singing"]}},
        "required": ["the user", "in"],
        "additionalProperties": False,
    }
)
GRAMMARS = (
    GrammarSpec(kind="json_schema", sources=(SCHEMA,)),
    GrammarSpec(kind="regex", sources=("(the user |[0-9]{2}){2,6}!",)),
    GrammarSpec(kind="choice", sources=("the user is in", "the ring", "\u00e9t\u00e9")),
    GrammarSpec(kind="lark", sources=('start: "a" start? "b"',)),
    None,
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedModel]:
    path = write_tiny_gguf(tmp_path_factory.mktemp("grammar") / "tiny.gguf", seed=3)
    num_threads = torch.get_num_threads()
    yield load_model(path, device=open_device("cpu", num_threads=1))
    torch.set_num_threads(num_threads)


def run(model: LoadedModel, *, max_draft_tokens: int) -> tuple[dict[str, Outcome], StatsLog]:
    log = StatsLog()
    engine = Engine(
        runner=ModelRunner(model, num_blocks=64, block_size=8),
        sampler=Sampler(),
        tokenizer=model.tokenizer,
        config=EngineConfig(
            num_blocks=64,
            block_size=8,
            max_batch_tokens=40,
            max_sequences=8,
            max_draft_tokens=max_draft_tokens,
            max_draft_rows=32,
        ),
        observer=log,
        clock_ns=FakeClock(),
        fresh_seed=lambda: FRESH_SEED,
        grammars=LlguidanceCompiler(model.tokenizer),
    )
    outcomes: dict[str, Outcome] = {}
    for idx in range(10):
        sampling = SamplingParams(
            max_tokens=60,
            temperature=0.0 if idx < 5 else 1.0,
            seed=idx,
            frequency_penalty=0.5 if idx in (1, 6) else 0.0,
            ignore_eos=idx == 7,
        )
        one = GenerationRequest(
            request_id=str(idx),
            prompt_token_ids=tuple(model.tokenizer.encode("the user " * 3, special=False)),
            sampling=sampling,
            grammar=GRAMMARS[idx % 5],
            arrival_ns=0,
        )
        engine.add(one)
        outcomes[one.request_id] = Outcome()
    for _ in range(800):
        for delta in engine.step():
            outcomes[delta.request_id].take(delta)
    assert not engine.has_work()
    return outcomes, log


def test_outputs_follow_their_grammars_and_drafts_change_none(model: LoadedModel) -> None:
    plain, log = run(model, max_draft_tokens=0)
    drafted, drafted_log = run(model, max_draft_tokens=5)
    for request_id, want in plain.items():
        got = drafted[request_id]
        assert (got.token_ids, got.text, got.finish_reason) == (
            want.token_ids,
            want.text,
            want.finish_reason,
        )
    assert sum(step.num_accepted_tokens for step in drafted_log.stats) > 0
    assert len(drafted_log.stats) < len(log.stats)
    assert any(step.grammar_ns for step in log.stats)
    texts = {idx: plain[str(idx)] for idx in range(10)}
    for idx in (0, 5):
        if texts[idx].finish_reason == "stop":
            assert json.loads(texts[idx].text)["in"] in ("ring", "singing")
        else:
            assert len(texts[idx].token_ids) == 60
            assert texts[idx].text.startswith("{")
    for idx in (2, 7):
        assert texts[idx].text in ("the user is in", "the ring", "\u00e9t\u00e9")
        assert texts[idx].finish_reason == "stop"
    for idx in (3, 8):
        half = len(texts[idx].text) // 2
        if texts[idx].finish_reason == "stop":
            assert texts[idx].text == "a" * half + "b" * half


class _Brittle:
    """A state that allows everything and breaks at its third token, or at its third mask."""

    def __init__(self, breaks_in: str) -> None:
        self.breaks_in, self.num_tokens = breaks_in, 0

    def num_valid(self, drafts: Sequence[int]) -> int:
        return len(drafts)

    def forced(self) -> Sequence[int]:
        return ()

    def fill_masks(self, masks: TokenMasks, drafts: Sequence[int]) -> None:
        if self.breaks_in == "mask" and self.num_tokens == 2:
            raise GrammarFailed("canary")

    def advance(self, token_id: int) -> bool:
        self.num_tokens += 1
        if self.breaks_in == "token" and self.num_tokens == 3:
            raise GrammarFailed("canary")
        return False


class _BrittleCompiler:
    def compile(self, spec: GrammarSpec) -> GrammarState:
        return _Brittle(spec.sources[0])


@pytest.mark.parametrize("breaks_in", ["mask", "token"])
def test_a_grammar_that_breaks_ends_its_own_request_alone(breaks_in: str) -> None:
    config = EngineConfig(num_blocks=16, block_size=4, max_batch_tokens=16, max_sequences=4)
    harness = Harness(config)
    harness.engine._grammars = _BrittleCompiler()
    grammar = GrammarSpec(kind="regex", sources=(breaks_in,))
    broken = GenerationRequest(
        request_id="broken",
        prompt_token_ids=(1, 2),
        sampling=SamplingParams(max_tokens=9, temperature=0, ignore_eos=True),
        grammar=grammar,
        arrival_ns=0,
    )
    harness.add(broken)
    harness.add(request("other", (3, 4), max_tokens=9))
    outcomes = harness.drain()
    assert outcomes["broken"].finish_reason == "grammar_failed"
    assert len(outcomes["broken"].token_ids) == 2
    assert outcomes["broken"].timing is not None
    assert outcomes["other"].finish_reason == "length"
    assert harness.log.stats[-1].num_used_blocks == 0
    assert all(step.error_type is None for step in harness.log.stats)


class _Dear:
    """A state that allows everything, whose masks take their time by the engine's clock."""

    def __init__(self, clock: FakeClock, mask_ns: int) -> None:
        self.clock, self.mask_ns = clock, mask_ns

    def num_valid(self, drafts: Sequence[int]) -> int:
        return len(drafts)

    def forced(self) -> Sequence[int]:
        return ()

    def fill_masks(self, masks: TokenMasks, drafts: Sequence[int]) -> None:
        self.clock.now_ns += self.mask_ns

    def advance(self, token_id: int) -> bool:
        return False


class _DearCompiler:
    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock

    def compile(self, spec: GrammarSpec) -> GrammarState:
        return _Dear(self.clock, int(spec.sources[0]))


def constrained(
    request_id: str, prompt: tuple[int, ...], *, mask_ns: int, max_tokens: int = 9
) -> GenerationRequest:
    return replace(
        request(request_id, prompt, max_tokens=max_tokens),
        grammar=GrammarSpec(kind="regex", sources=(str(mask_ns),)),
    )


def test_dear_masks_take_turns_and_hold_up_nobody_else() -> None:
    config = EngineConfig(
        num_blocks=64, block_size=4, max_batch_tokens=64, max_sequences=10, itl_target_s=0.1
    )
    harness = Harness(config)
    clock = harness.engine._clock_ns
    assert isinstance(clock, FakeClock)
    harness.engine._grammars = _DearCompiler(clock)
    wanted = [request("plain", (3, 4, 5, 6, 7), max_tokens=9)]
    wanted += [constrained("cheap", (1, 2, 3, 4), mask_ns=1000)]
    wanted += [constrained(str(idx), (1, 2, idx), mask_ns=20_000_000) for idx in range(1, 7)]
    for one in wanted:
        harness.add(one)
    outcomes = harness.drain()
    took_ns = [step.ended_ns - step.started_ns for step in harness.log.stats]
    assert max(took_ns) < 50_000_000  # 120 ms, if every mask were waited for
    for one in wanted:
        expected = harness.expected(one)
        assert outcomes[one.request_id].token_ids == expected.token_ids
        assert outcomes[one.request_id].finish_reason == expected.finish_reason
    ended = {
        name: outcome.timing.finished_ns for name, outcome in outcomes.items() if outcome.timing
    }
    assert max(ended["plain"], ended["cheap"]) < min(ended[str(idx)] for idx in range(1, 7))
    assert harness.log.stats[-1].num_used_blocks == 0


def test_cheap_masks_that_never_end_do_not_starve_dear_ones() -> None:
    config = EngineConfig(
        num_blocks=512, block_size=4, max_batch_tokens=512, max_sequences=50, itl_target_s=0.05
    )
    harness = Harness(config)
    clock = harness.engine._clock_ns
    assert isinstance(clock, FakeClock)
    harness.engine._grammars = _DearCompiler(clock)
    names = [f"cheap{idx}" for idx in range(40)]  # 36 ms in all, of 12.5 a step
    for idx, name in enumerate(names):
        harness.add(constrained(name, (1, 2, idx % 9, idx // 9), mask_ns=900_000, max_tokens=30))
    harness.add(constrained("dear", (3, 4), mask_ns=1_100_000, max_tokens=8))
    outcomes = harness.drain()
    ended = {
        name: outcome.timing.finished_ns for name, outcome in outcomes.items() if outcome.timing
    }
    assert ended["dear"] < min(ended[name] for name in names)


def test_without_a_compiler_a_grammar_is_refused_before_anything_is_held() -> None:
    harness = Harness(EngineConfig(num_blocks=16, block_size=4))
    with pytest.raises(InvalidGrammar):
        harness.engine.add(
            GenerationRequest(
                request_id="r",
                prompt_token_ids=(1, 2),
                sampling=SamplingParams(max_tokens=1),
                grammar=GRAMMARS[1],
                arrival_ns=0,
            )
        )
    assert not harness.engine.has_work()

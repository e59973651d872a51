"""Does a real model say the same whatever it shares its steps and its cache with?"""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from tokenizers import pre_tokenizers

from runtime import Engine, EngineConfig, GenerationRequest, SamplingParams
from runtime.devices.registry import open_device
from runtime.model_runner import LoadedModel, ModelRunner, load_model
from runtime.sampler import Sampler
from tests.runtime.harness import FRESH_SEED, Outcome, StatsLog
from tests.support.fake_runner import FakeClock
from tests.support.hf_models import make_model, save_model
from tests.support.tiny_model import write_tiny_gguf
from tests.support.tokenizers import byte_level_tokenizer, folder_contents

COMMON = "the user is there and the user is here; "
TAILS = ("", "on 2024", "again", "ring the bell \u00e9t\u00e9", "a", "there there there there")


@pytest.fixture(scope="module", params=["gguf", "folder"])
def model(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LoadedModel]:
    """A llama in one file; a Gemma 3 with sliding windows and a padded vocabulary in a folder."""
    folder = tmp_path_factory.mktemp("model")
    path = folder
    if request.param == "gguf":
        path = write_tiny_gguf(folder / "tiny.gguf", seed=3)
    else:
        save_model(make_model("gemma3"), folder)
        pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        for name, content in folder_contents(byte_level_tokenizer(pre_tokenizer)).items():
            (folder / name).write_bytes(content)
    num_threads = torch.get_num_threads()
    loaded = load_model(path, device=open_device("cpu", num_threads=1))
    assert loaded.config.vocab_size == loaded.tokenizer.vocab_size
    yield loaded
    torch.set_num_threads(num_threads)


def make_engine(
    model: LoadedModel,
    *,
    num_blocks: int,
    block_size: int,
    max_batch_tokens: int,
    max_sequences: int,
    prefix_cache: bool = True,
    max_draft_tokens: int = 0,
) -> tuple[Engine, StatsLog]:
    config = EngineConfig(
        num_blocks=num_blocks,
        block_size=block_size,
        max_batch_tokens=max_batch_tokens,
        max_sequences=max_sequences,
        prefix_cache=prefix_cache,
        output_quantile=0.0,  # admits what may have to be preempted
        max_draft_tokens=max_draft_tokens,
        max_draft_rows=16,
        model_sha256=model.weights_sha256,
    )
    log = StatsLog()
    engine = Engine(
        runner=ModelRunner(model, num_blocks=num_blocks, block_size=block_size),
        sampler=Sampler(),
        tokenizer=model.tokenizer,
        config=config,
        observer=log,
        clock_ns=FakeClock(),
        fresh_seed=lambda: FRESH_SEED,
    )
    return engine, log


def make_requests(model: LoadedModel) -> list[GenerationRequest]:
    """Greedy and seeded requests, most with a common prefix, one of them twice."""
    requests = []
    for idx, tail in enumerate((*TAILS, TAILS[1])):
        text = tail + COMMON if idx == 2 else COMMON + tail
        sampling = SamplingParams(
            max_tokens=10 + 7 * idx,
            temperature=0.8 if idx == 4 else 0.0,
            seed=idx,
            ignore_eos=True,
        )
        requests.append(
            GenerationRequest(
                request_id=f"r{idx}",
                prompt_token_ids=tuple(model.tokenizer.encode(text, special=False)),
                sampling=sampling,
                arrival_ns=0,
            )
        )
    return requests


def run(
    engine: Engine, requests: list[GenerationRequest], steps_between: list[int]
) -> dict[str, Outcome]:
    outcomes = {request.request_id: Outcome() for request in requests}

    def step() -> None:
        for delta in engine.step():
            outcomes[delta.request_id].take(delta)

    for request, num_steps in zip(requests, steps_between, strict=True):
        engine.add(request)
        for _ in range(num_steps):
            step()
    for _ in range(3_000):
        if engine.has_work():
            step()
    assert not engine.has_work()
    return outcomes


@pytest.fixture(scope="module")
def lone_outcomes(model: LoadedModel) -> dict[str, Outcome]:
    """Each request alone in a fresh engine: whole prefill, no cache, no preemption."""
    outcomes: dict[str, Outcome] = {}
    for request in make_requests(model):
        engine, _ = make_engine(
            model,
            num_blocks=32,
            block_size=16,
            max_batch_tokens=512,
            max_sequences=1,
            prefix_cache=False,
        )
        outcomes |= run(engine, [request], [0])
    return outcomes


@pytest.mark.parametrize("max_draft_tokens", [0, 5])
@pytest.mark.parametrize("seed", range(4))
def test_the_text_is_the_same_in_any_company(
    model: LoadedModel, lone_outcomes: dict[str, Outcome], seed: int, max_draft_tokens: int
) -> None:
    rng = np.random.default_rng(seed)
    block_size = int(rng.choice([4, 8, 16]))
    max_sequences = int(rng.integers(3, 6))
    requests = make_requests(model)
    rng.shuffle(requests)
    engine, log = make_engine(
        model,
        num_blocks=112 // block_size,
        block_size=block_size,
        max_batch_tokens=max_sequences + int(rng.integers(8, 60)),
        max_sequences=max_sequences,
        max_draft_tokens=max_draft_tokens,
    )
    outcomes = run(engine, requests, rng.integers(0, 4, size=len(requests)).tolist())
    for request_id, outcome in outcomes.items():
        assert outcome.token_ids == lone_outcomes[request_id].token_ids
        assert outcome.text == lone_outcomes[request_id].text
        assert outcome.text == model.tokenizer.decode(outcome.token_ids)
    assert sum(stats.num_preempted for stats in log.stats) > 0
    assert bool(sum(stats.num_accepted_tokens for stats in log.stats)) == bool(max_draft_tokens)
    assert any(outcome.timing and outcome.timing.cached_tokens for outcome in outcomes.values())


def test_a_second_turn_finds_the_first(model: LoadedModel) -> None:
    engine, _ = make_engine(
        model, num_blocks=32, block_size=16, max_batch_tokens=64, max_sequences=2
    )
    first = make_requests(model)[0]
    answer = run(engine, [first], [0])["r0"].token_ids
    prompt = (*first.prompt_token_ids, *answer, *first.prompt_token_ids)
    second = GenerationRequest(
        request_id="again", prompt_token_ids=prompt, sampling=first.sampling, arrival_ns=0
    )
    timing = run(engine, [second], [0])["again"].timing
    assert timing is not None
    assert timing.cached_tokens == (len(first.prompt_token_ids) + len(answer) - 1) // 16 * 16

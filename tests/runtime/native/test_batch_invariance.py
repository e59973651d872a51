"""Are the compiled model's logits of a token the same bits whatever else its step computes?

``NativeRunner.is_batch_invariant`` promises it to sequences that ask for it: drafts and seeds then
never change an output.
"""

from collections.abc import Sequence as Rows
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from runtime.config import EngineConfig
from runtime.sampling import SamplingParams
from runtime.scheduler import Scheduler
from runtime.sequence import GenerationRequest, Sequence, SequenceStatus
from tests.support.native_models import ISAS, load_native, require_isa
from tests.support.plans import Chunk, build_plan
from tests.support.tiny_model import gguf_bytes, tiny_metadata, tiny_tensors, tiny_vocabulary

Floats = npt.NDArray[np.float32]
BLOCK_SIZE, CONTEXT, NUM_SEQUENCES = 8, 53, 17


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of heads that AMX tiles take: multiples of 32."""
    metadata = tiny_metadata() | {
        "llama.attention.head_count": 2,
        "llama.attention.head_count_kv": 1,
        "llama.rope.dimension_count": 32,
    }
    path = tmp_path_factory.mktemp("invariance") / "tiny.gguf"
    path.write_bytes(gguf_bytes(metadata, tiny_tensors(seed=3)))
    return path


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    ("precision", "kv_dtype"), [("int8", "bf16"), ("int8", "int8"), ("f32", "f32")]
)
@pytest.mark.parametrize("prompt_len", [0, CONTEXT + 4, 80])
def test_a_token_has_the_same_logits_in_any_company(
    path: Path, isa: str, precision: str, kv_dtype: str, prompt_len: int
) -> None:
    require_isa(isa)
    from runtime.native_runner import NativeRunner

    model = load_native(path, precision=precision, isa=isa)
    runner = NativeRunner(
        model, num_blocks=NUM_SEQUENCES * 10, block_size=BLOCK_SIZE, kv_dtype=kv_dtype
    )
    assert runner.is_batch_invariant
    texts = np.random.default_rng(0).integers(3, len(tiny_vocabulary()), (NUM_SEQUENCES, 80))

    def part(sequence: int, start: int, stop: int, *, all_logits: bool = False) -> Chunk:
        return Chunk(
            token_ids=texts[sequence, start:stop].tolist(),
            start=start,
            block_ids=range(sequence * 10, sequence * 10 + 10),
            all_logits=all_logits,
            prompt_len=prompt_len,
        )

    def run(parts: Rows[Chunk]) -> Floats:
        logits: Any = runner.run(build_plan(parts, block_size=BLOCK_SIZE))
        rows: Floats = logits.rows.copy()
        return rows

    for sequence in range(NUM_SEQUENCES):
        run([part(sequence, 0, CONTEXT)])
    alone = np.concatenate([run([part(0, CONTEXT + n, CONTEXT + n + 1)]) for n in range(8)])
    for num_sequences in (2, 3, 4, 5, 8, 9, 17):
        parts = [part(sequence, CONTEXT, CONTEXT + 1) for sequence in range(num_sequences)]
        assert (run(parts)[0] == alone[0]).all()
        assert (run(parts[::-1])[-1] == alone[0]).all()
    for num_drafts in range(1, 8):
        drafted = run([part(0, CONTEXT, CONTEXT + 1 + num_drafts, all_logits=True)])
        assert (drafted == alone[: num_drafts + 1]).all()
    beside = run([part(0, CONTEXT, CONTEXT + 1), part(1, 0, 80), part(2, 0, 80)])
    assert (beside[0] == alone[0]).all()
    for cut in (1, 7, 32, 52):
        run([part(0, 0, cut)])
        run([part(0, cut, CONTEXT)])
        assert (run([part(0, CONTEXT, CONTEXT + 1)])[0] == alone[0]).all()


def test_prompts_go_another_way_where_tiles_multiply_them(path: Path) -> None:
    require_isa("avx512amx")
    from runtime.native_runner import NativeRunner

    texts = np.random.default_rng(1).integers(3, len(tiny_vocabulary()), 64).tolist()

    def logits(precision: str, prompt_len: int) -> Floats:
        runner = NativeRunner(
            load_native(path, precision=precision, isa="avx512amx"), num_blocks=8, block_size=8
        )
        whole = Chunk(
            token_ids=texts,
            start=0,
            block_ids=range(8),
            all_logits=True,
            prompt_len=prompt_len,
        )
        rows: Floats = runner.run(build_plan([whole], block_size=8)).rows.copy()
        return rows

    exact = logits("f32", 0)
    generated, prompt, half = (logits("int8", length) for length in (0, 64, 32))
    assert np.square(prompt - exact).mean() < 2 * np.square(generated - exact).mean()
    assert (half[:32] == prompt[:32]).all()
    assert not (half[32:] == prompt[32:]).all()


class Company:
    """Sequences of one model, each after a prompt of 40 tokens; what do their next ones cost?"""

    def __init__(self, path: Path, isa: str, *, precision: str = "int8") -> None:
        from runtime.native_runner import NativeRunner

        model = load_native(path, precision=precision, isa=isa)
        self._runner = NativeRunner(model, num_blocks=24 * 8, block_size=8)
        self._texts = np.random.default_rng(2).integers(3, len(tiny_vocabulary()), (24, 64))
        for sequence in range(24):
            self._runner.run(build_plan([self.part(sequence, 0, 40)], block_size=8))

    def part(self, sequence: int, start: int, stop: int, *, batch_invariant: bool = True) -> Chunk:
        return Chunk(
            token_ids=self._texts[sequence, start:stop].tolist(),
            start=start,
            block_ids=range(sequence * 8, sequence * 8 + 8),
            all_logits=True,
            prompt_len=40,
            batch_invariant=batch_invariant,
        )

    def logits(self, *parts: Chunk) -> Floats:
        rows: Any = self._runner.run(build_plan(parts, block_size=8)).rows
        copy: Floats = rows.copy()
        return copy

    def step(self, num: int, *, num_invariant: int) -> Floats:
        """One generated token of each, the first of which must not depend on the others."""
        return self.logits(
            *(self.part(n, 40, 41, batch_invariant=n < num_invariant) for n in range(num))
        )


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("num", [6, 15, 24])
def test_only_who_may_depend_on_others_does(path: Path, isa: str, num: int) -> None:
    require_isa(isa)
    company = Company(path, isa)
    alone = company.step(num, num_invariant=num)
    exact = Company(path, isa, precision="f32").step(num, num_invariant=num)
    for num_invariant in (0, 3):
        found = company.step(num, num_invariant=num_invariant)
        assert (found[:num_invariant] == alone[:num_invariant]).all()
        others, usual = found[num_invariant:], alone[num_invariant:]
        is_enough = num - num_invariant >= 6 and isa == "avx512amx"
        assert (others == usual).all() != is_enough
        least = exact[num_invariant:]
        assert np.square(others - least).mean() < 2 * np.square(usual - least).mean()


def test_logits_of_prompts_and_of_seeds_lie_between_those_in_bulk(path: Path) -> None:
    """From sixteen generated rows on the head goes in bulk too, for these rows alone."""
    require_isa("avx512amx")
    company = Company(path, "avx512amx")
    num_prompt = 40

    def prompt() -> Chunk:
        return company.part(23, 0, num_prompt)

    def generated(num: int, *, batch_invariant: bool) -> list[Chunk]:
        return [company.part(n, 40, 41, batch_invariant=batch_invariant) for n in range(num)]

    alone = company.logits(*generated(20, batch_invariant=True))
    of_prompt = company.logits(prompt())
    few = company.logits(*generated(15, batch_invariant=False))
    seeds = generated(20, batch_invariant=True)
    free = generated(20, batch_invariant=False)
    mixed = company.logits(*free[:9], seeds[9], prompt(), *free[10:20])
    assert (mixed[9] == alone[9]).all()
    assert (mixed[10 : 10 + num_prompt] == of_prompt).all()
    many = np.concatenate([mixed[:9], mixed[10 + num_prompt :]])
    assert (many == company.logits(*free[:9], *free[10:20])).all()
    assert not (many[:9] == few[:9]).all()
    usual = np.delete(alone, 9, axis=0)
    assert 0 < np.square(many - usual).mean() < 0.05 * np.square(usual).mean()


def test_a_seeded_request_does_not_go_on_from_what_others_generated(path: Path) -> None:
    """The same prompt and, greedy, the same text: their blocks would be one in the prefix cache."""
    require_isa("avx512amx")
    alone, _ = generate(path, num_others=0)
    among, num_merged = generate(path, num_others=8)
    assert num_merged > 0
    assert len(alone) == len(among) == 40
    assert all((one == other).all() for one, other in zip(alone, among, strict=True))


def generate(path: Path, *, num_others: int) -> tuple[list[Floats], int]:
    """Logits of a seeded request beside others of its prompt, and how many blocks were merged."""
    from runtime.native_runner import NativeRunner

    runner = NativeRunner(
        load_native(path, precision="int8", isa="avx512amx"), num_blocks=400, block_size=8
    )
    scheduler = Scheduler(EngineConfig(num_blocks=400, block_size=8))
    prompt = tuple(range(3, 23))
    sequences = []
    for number in range(num_others + 1):
        request = GenerationRequest(
            request_id=str(number),
            prompt_token_ids=prompt,
            sampling=SamplingParams(max_tokens=40, temperature=0.0),
            arrival_ns=0,
        )
        sequence = Sequence(
            request,
            rng_seed=1,
            max_output_tokens=40,
            is_batch_invariant=number == num_others,
        )
        scheduler.add(sequence)
        sequences.append(sequence)
    found: list[Floats] = []
    while (step := scheduler.schedule()) is not None:
        rows: Any = runner.run(step.plan).rows
        if sequences[-1] in [row.sequence for row in step.sampled]:
            index = [row.sequence for row in step.sampled].index(sequences[-1])
            found.append(rows[index].copy())
        scheduler.commit(step, [[int(row.argmax())] for row in rows], step_s=0.01)
        for sequence in sequences:
            is_running = sequence.status is SequenceStatus.RUNNING
            if is_running and sequence.num_output_tokens == 40:
                scheduler.finish(sequence)
    return found, scheduler.kv.num_merged_blocks


def test_ones_own_drafts_are_no_company_but_a_prompt_is(path: Path) -> None:
    require_isa("avx512amx")
    company = Company(path, "avx512amx")
    alone = company.logits(company.part(0, 40, 48))
    free = company.part(0, 40, 48, batch_invariant=False)
    assert (company.logits(free) == alone).all()
    beside = company.logits(free, company.part(1, 0, 40))
    assert not (beside[:8] == alone).all()
    fixed = company.logits(company.part(0, 40, 48), company.part(1, 0, 40))
    assert (fixed[:8] == alone).all()
    assert (fixed[8:] == beside[8:]).all()

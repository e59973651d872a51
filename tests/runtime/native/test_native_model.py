"""Does the compiled model give the logits of its torch reference, whatever is switched on?"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from tests.support.decoders import load_reference
from tests.support.hf_models import MODELS, WINDOW, make_model, save_model, tokens
from tests.support.native_models import ISAS, load_native, require_isa
from tests.support.plans import Chunk, build_plan
from tests.support.tiny_model import (
    F32,
    Q8_0,
    gguf_bytes,
    tiny_metadata,
    tiny_tensors,
    tiny_vocabulary,
    write_tiny_gguf,
)

Floats = npt.NDArray[np.float32]
NUM_TOKENS = 60
F32_TOLERANCE = 1e-4  # float32 sums in another order; logits are of the order of 5
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    require_isa("")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def new_runner(model: Any, **options: Any) -> Any:
    from runtime.native_runner import NativeRunner

    defaults: dict[str, Any] = {"num_blocks": 64, "kv_dtype": "f32"}
    return NativeRunner(model, **(defaults | options))


def chunked(runner: Any, token_ids: list[int], cuts: list[int]) -> Floats:
    """Logits of every position, from one step for each piece, in scrambled blocks."""
    blocks = np.random.default_rng(1).permutation(runner.num_blocks).tolist()
    pieces = []
    for start, end in pairwise([0, *cuts, len(token_ids)]):
        chunk = Chunk(
            token_ids=token_ids[start:end], start=start, block_ids=blocks, all_logits=True
        )
        logits = runner.run(build_plan([chunk], block_size=runner.block_size))
        assert logits.best_ids == logits.rows.argmax(-1).tolist()
        pieces.append(logits.rows.copy())
    return np.concatenate(pieces)


class Folder:
    """A tiny model of one architecture: its folder and its reference's logits."""

    def __init__(self, name: str, path: Path) -> None:
        self.path = save_model(make_model(name), path)
        self.token_ids = tokens(NUM_TOKENS)
        self.logits: Floats = load_reference(self.path).whole(self.token_ids)


@pytest.fixture(scope="module", params=MODELS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return Folder(request.param, tmp_path_factory.mktemp("folder"))


@pytest.mark.parametrize("cuts", [[], [1], [WINDOW, 2 * WINDOW, 50], [*range(20, 40)]])
def test_every_architecture_in_f32(folder: Folder, cuts: list[int]) -> None:
    runner = new_runner(load_native(folder.path, precision="f32"))
    assert np.abs(folder.logits).max() > 0.5
    assert np.abs(chunked(runner, folder.token_ids, cuts) - folder.logits).max() < F32_TOLERANCE


WANTED = [[], [0], [59], [3, 4, 5, 20, 58, 59], [59, 3], [7, 7], [*range(1, 60)]]


@pytest.mark.parametrize("precision", ["f32", "int8"])
def test_wanted_logits_are_those_of_all(folder: Folder, precision: str) -> None:
    """The last layer leaves out the rows that nobody asks for."""
    model = load_native(folder.path, precision=precision, num_threads=2)
    chunks = [
        Chunk(token_ids=folder.token_ids[:40], start=0, block_ids=[5, 2, 9], prompt_len=40),
        Chunk(token_ids=folder.token_ids[:17], start=0, block_ids=[1, 3], prompt_len=12),
        Chunk(token_ids=folder.token_ids[:3], start=0, block_ids=[4], prompt_len=1),
    ]
    plan = build_plan(chunks, block_size=16)
    runner = new_runner(model, kv_dtype="bf16")
    every = runner.run(replace(plan, logits_rows=np.arange(60, dtype=np.int32))).rows.copy()
    for rows in WANTED:
        got = runner.run(replace(plan, logits_rows=np.array(rows, dtype=np.int32))).rows
        np.testing.assert_array_equal(got, every[rows])


@pytest.mark.parametrize("isa", ISAS)
def test_wanted_logits_after_a_context_of_several_parts(gguf: Path, isa: str) -> None:
    runner = new_runner(
        load_native(gguf, precision="int8", isa=isa, num_threads=2), kv_dtype="bf16"
    )
    text, table = gguf_tokens(500), [*range(32)]
    runner.run(build_plan([Chunk(token_ids=text[:360], start=0, block_ids=table)], block_size=16))
    rest = Chunk(token_ids=text[360:], start=360, block_ids=table, prompt_len=498, all_logits=True)
    plan = build_plan([rest], block_size=16)
    every = runner.run(plan).rows.copy()
    for rows in ([137], [139], [138, 139], [50, 51, 137, 138]):
        got = runner.run(replace(plan, logits_rows=np.array(rows, dtype=np.int32))).rows
        np.testing.assert_array_equal(got, every[rows])


@pytest.mark.parametrize("isa", ISAS)
def test_every_instruction_set_in_f32(folder: Folder, isa: str) -> None:
    runner = new_runner(load_native(folder.path, precision="f32", isa=isa))
    assert np.abs(chunked(runner, folder.token_ids, [33]) - folder.logits).max() < F32_TOLERANCE


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Quantized weights of several types, biggest logits about 10."""
    return write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf")


def gguf_tokens(count: int, seed: int = 0) -> list[int]:
    rng = np.random.default_rng(seed)
    return [int(t) for t in rng.integers(0, len(tiny_vocabulary()), count)]


def relative_error(got: Floats, want: Floats) -> float:
    return float(np.sqrt(((got - want) ** 2).mean() / (want**2).mean()))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    ("precision", "kv_dtype", "limit"),
    [
        ("f32", "f32", 1e-6),
        ("f32", "bf16", 5e-3),
        ("f32", "int8", 1e-2),
        ("int8", "f32", 2e-2),
        ("int8", "bf16", 2e-2),
    ],
)
def test_quantized_files_and_caches(
    gguf: Path, isa: str, precision: str, kv_dtype: str, limit: float
) -> None:
    token_ids = gguf_tokens(50)
    model = load_native(gguf, precision=precision, isa=isa)
    want = load_reference(gguf).whole(token_ids)
    for cuts in ([], [5, 6, 40], [*range(1, 50)]):
        runner = new_runner(model, kv_dtype=kv_dtype)
        assert relative_error(chunked(runner, token_ids, cuts), want) < limit


@pytest.mark.parametrize("isa", ISAS)
def test_logits_near_the_best_are_not_rounded(tmp_path: Path, isa: str) -> None:
    """Only the head has weights that meet activations of eight bits here."""
    tensors = {
        name: (values, Q8_0 if name == "token_embd.weight" else F32)
        for name, (values, _) in tiny_tensors().items()
    }
    path = tmp_path / "head.gguf"
    path.write_bytes(gguf_bytes(tiny_metadata(), tensors))
    require_isa(isa)
    exact, got = (
        chunked(new_runner(load_native(path, precision=each, isa=isa)), gguf_tokens(200), [])
        for each in ("f32", "int8")
    )
    near = exact > exact.max(-1, keepdims=True) - 0.4
    is_settled = (near.sum(-1) > 1) & (near.sum(-1) < 20)
    assert is_settled.sum() >= 10
    errors = got - exact
    errors -= np.where(near, errors, 0).sum(-1, keepdims=True) / near.sum(-1, keepdims=True)
    errors = np.abs(errors[is_settled])
    assert errors[near[is_settled]].max() < F32_TOLERANCE < errors[~near[is_settled]].max()
    assert (got.argmax(-1) == exact.argmax(-1))[is_settled].all()


@pytest.mark.parametrize("isa", ISAS)
def test_the_best_id_is_that_of_the_largest_logit(tmp_path: Path, isa: str) -> None:
    """Also where all of a head's outputs err alike, which those computed again do not."""
    tensors = {name: (values, F32) for name, (values, _) in tiny_tensors().items()}
    rng = np.random.default_rng(0)
    shape = tensors["token_embd.weight"][0].shape
    head = rng.normal(0, 1 / np.sqrt(shape[1]), shape) + 10 * rng.normal(0, 1, shape[1])
    tensors["output.weight"] = (head.astype(np.float32), Q8_0)
    path = tmp_path / "common.gguf"
    path.write_bytes(gguf_bytes(tiny_metadata(), tensors))
    require_isa(isa)
    chunked(new_runner(load_native(path, precision="int8", isa=isa)), gguf_tokens(200), [])


@pytest.mark.parametrize("block_size", [1, 7, 16, 32])
def test_any_block_size(gguf: Path, block_size: int) -> None:
    token_ids = gguf_tokens(50)
    runner = new_runner(load_native(gguf, precision="f32"), block_size=block_size)
    want = load_reference(gguf).whole(token_ids)
    assert relative_error(chunked(runner, token_ids, [9, 10, 30]), want) < 1e-6


@pytest.mark.parametrize("precision", ["f32", "int8"])
@pytest.mark.parametrize("num_threads", [1, 2, 5])
def test_a_sequence_does_not_depend_on_its_company(
    gguf: Path, precision: str, num_threads: int
) -> None:
    """Ragged mixes: prompts, decode rows and second chunks in one step, bit for bit."""
    model = load_native(gguf, precision=precision, num_threads=num_threads)
    lengths, befores = (3, 40, 17, 1, 9), (0, 0, 20, 30, 0)
    texts = [gguf_tokens(n + b, seed=n) for n, b in zip(lengths, befores, strict=True)]
    tables = [range(4 * index, 4 * index + 4) for index in range(len(texts))]
    lone = []
    for text, before, table in zip(texts, befores, tables, strict=True):
        runner = new_runner(model, kv_dtype="bf16")
        if before:
            first = Chunk(token_ids=text[:before], start=0, block_ids=table)
            runner.run(build_plan([first], block_size=16))
        rest = Chunk(token_ids=text[before:], start=before, block_ids=table, all_logits=True)
        lone.append(runner.run(build_plan([rest], block_size=16)).rows.copy())
    runner = new_runner(model, kv_dtype="bf16", max_batch_tokens=8)  # grows
    parts = list(zip(texts, befores, tables, strict=True))
    firsts = [Chunk(token_ids=t[:b], start=0, block_ids=table) for t, b, table in parts if b]
    runner.run(build_plan(firsts, block_size=16))
    rests = [
        Chunk(token_ids=t[b:], start=b, block_ids=table, all_logits=True) for t, b, table in parts
    ]
    together = runner.run(build_plan(rests, block_size=16)).rows
    np.testing.assert_array_equal(together, np.concatenate(lone))


def test_shared_blocks_serve_both(gguf: Path) -> None:
    """A prefix computed once: another sequence starts behind it."""
    model = load_native(gguf, precision="f32")
    token_ids = gguf_tokens(50)
    runner = new_runner(model)
    prefix = Chunk(token_ids=token_ids[:32], start=0, block_ids=[7, 3])
    runner.run(build_plan([prefix], block_size=16))
    rest = Chunk(token_ids=token_ids[32:], start=32, block_ids=[7, 3, 9, 1], all_logits=True)
    got = runner.run(build_plan([rest], block_size=16)).rows
    want = load_reference(gguf).whole(token_ids)[32:]
    assert relative_error(got, want) < 1e-6


def test_steps_without_logits_and_without_tokens(gguf: Path) -> None:
    runner = new_runner(load_native(gguf, precision="int8"))
    assert runner.run(build_plan([], block_size=16)).rows.shape == (0, runner.vocab_size)
    assert runner.run(build_plan([], block_size=16)).best_ids == []


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("token_ids", -1, IndexError),
        ("token_ids", 10**6, IndexError),
        ("positions", -1, IndexError),
        ("positions", 10**6, IndexError),
        ("positions", 3, ValueError),
        ("slot_mapping", -1, IndexError),
        ("slot_mapping", 10**9, IndexError),
        ("slot_mapping", 2, ValueError),
        ("block_tables", -1, IndexError),
        ("block_tables", 64, IndexError),
        ("logits_rows", -1, IndexError),
        ("logits_rows", 20, IndexError),
        ("context_lens", 7, ValueError),
        ("context_lens", 10**6, ValueError),
        ("query_starts", 1, ValueError),
    ],
)
def test_plans_that_name_what_is_not_there_are_refused(
    gguf: Path, field: str, value: int, error: type[Exception]
) -> None:
    runner = new_runner(load_native(gguf, precision="int8"))
    plan = build_plan([Chunk(token_ids=gguf_tokens(20), start=0, block_ids=[0, 1])], block_size=16)
    runner.run(plan)
    getattr(plan, field).flat[0] = value
    with pytest.raises(error, match=r"\w"):
        runner.run(plan)


def test_more_logits_than_rows_are_refused(gguf: Path) -> None:
    runner = new_runner(load_native(gguf, precision="int8"))
    plan = build_plan([Chunk(token_ids=gguf_tokens(1), start=0, block_ids=[0])], block_size=16)
    with pytest.raises(ValueError, match="more logits"):
        runner.run(replace(plan, logits_rows=np.zeros(20_000, np.int32)))


def test_arrays_of_other_lengths_are_refused(gguf: Path) -> None:
    runner = new_runner(load_native(gguf, precision="int8"))
    plan = build_plan([Chunk(token_ids=gguf_tokens(20), start=0, block_ids=[0, 1])], block_size=16)
    fields: list[Any] = [
        plan.token_ids,
        plan.positions,
        plan.query_starts,
        plan.context_lens,
        plan.prompt_lens,
        plan.batch_invariant,
        plan.block_tables,
        plan.slot_mapping,
        plan.logits_rows,
    ]
    for index in range(8):
        wrong = [*fields]
        wrong[index] = wrong[index][:-1]
        with pytest.raises(ValueError, match=r"\w"):
            runner._model.step(*wrong)
    with pytest.raises(TypeError):
        runner._model.step(plan.token_ids.astype(np.int64), *fields[1:])


def test_a_view_of_logits_outlives_the_model(gguf: Path) -> None:
    runner = new_runner(load_native(gguf, precision="int8"))
    plan = build_plan([Chunk(token_ids=gguf_tokens(2), start=0, block_ids=[0])], block_size=16)
    rows = runner.run(plan).rows
    before = rows.copy()
    chunked(runner, gguf_tokens(40), [])  # needs more rows, so other memory
    del runner
    np.testing.assert_array_equal(rows, before)

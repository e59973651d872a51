"""Does attention over the native KV pool agree with attention by its formula, in every layout?"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.native_models import ISAS, require_isa
from tests.support.plans import Chunk, build_plan

Floats = npt.NDArray[np.float64]
# (rows of this step, tokens before it) of each sequence
MIXED = [(1, 40), (33, 0), (1, 0), (7, 90), (128, 1), (1, 31), (2, 2), (1, 700)]
SHAPES = [  # query heads, KV heads, head size, block size
    (9, 3, 64, 16),
    (4, 2, 16, 16),
    (1, 1, 32, 1),
    (8, 8, 80, 5),
    (6, 1, 128, 32),
    (60, 1, 48, 3),
]
# Root mean square, relative: float32 sums; 8 bits of mantissa (q, K, V, weights); 127 steps.
TOLERANCES = {"f32": 1e-6, "bf16": 6e-3, "int8": 1.5e-2}


class Case:
    """Random keys, values and queries in scrambled blocks of the second of two layers."""

    def __init__(
        self,
        native: Any,
        shape: tuple[int, int, int, int],
        batch: Sequence[tuple[int, int]],
        *,
        kv_dtype: str,
        isa: str = "",
        num_threads: int = 2,
        num_shared: int = 0,
    ) -> None:
        self.heads, self.kv_heads, self.head_dim, self.block_size = shape
        self.batch = batch
        self.cpu = native.Cpu(num_threads, isa)
        # There prompts have a kernel of their own; the other is that of avx512vnni.
        self.of_prompts = self.cpu.isa == "avx512amx"
        self.in_bulk = False
        rng = np.random.default_rng(7)
        counts = [-(-(rows + before) // self.block_size) for rows, before in batch]
        num_blocks = sum(counts) + 3
        order = iter(rng.permutation(num_blocks).tolist())
        self.tables = [[next(order) for _ in range(count)] for count in counts]
        for table in self.tables:  # the first blocks are those of the first sequence
            table[:num_shared] = self.tables[0][: min(num_shared, len(table))]
        self.plan = build_plan(
            [
                Chunk(token_ids=[0] * rows, start=before, block_ids=table)
                for (rows, before), table in zip(batch, self.tables, strict=True)
            ],
            block_size=self.block_size,
        )
        self.pool = native.KvPool(
            num_layers=2,
            num_blocks=num_blocks,
            block_size=self.block_size,
            num_kv_heads=self.kv_heads,
            head_dim=self.head_dim,
            kv_dtype=kv_dtype,
        )
        num_slots = num_blocks * self.block_size
        self.keys, self.values = (
            rng.normal(0, 1, (num_slots, self.kv_heads, self.head_dim)).astype(np.float32)
            for _ in range(2)
        )
        self.q = rng.normal(0, 2, (self.plan.num_tokens, self.heads, self.head_dim)).astype(
            np.float32
        )
        self.fill(np.nan, np.arange(num_slots))  # what is not written again is never read
        for table, (rows, before) in zip(self.tables, batch, strict=True):
            self.fill(None, self.slots(table, rows + before))

    def slots(self, table: Sequence[int], count: int) -> npt.NDArray[np.int64]:
        positions = np.arange(count)
        blocks = np.array(table, np.int64)[positions // self.block_size]
        return blocks * self.block_size + positions % self.block_size

    def fill(self, value: float | None, slots: npt.NDArray[np.int64]) -> None:
        keys, values = self.keys[slots], self.values[slots]
        if value is not None:
            keys, values = np.full_like(keys, value), np.full_like(values, value)
        self.pool.write(self.cpu, 1, slots, keys, values)

    def attend(self, *, softcap: float = 0.0, window: int = 0) -> npt.NDArray[np.float32]:
        out = np.full_like(self.q, np.nan)
        self.pool.attend(
            self.cpu,
            1,
            self.q,
            self.plan.query_starts,
            self.plan.context_lens,
            self.plan.block_tables,
            out,
            self.head_dim**-0.5,
            softcap,
            window,
            self.of_prompts,
            self.in_bulk,
        )
        return out

    def expected(self, *, softcap: float = 0.0, window: int = 0) -> Floats:
        out = np.empty(self.q.shape)
        row = 0
        for table, (rows, before) in zip(self.tables, self.batch, strict=True):
            slots = self.slots(table, rows + before)
            for position in range(before, before + rows):
                first = max(0, position - window + 1) if window else 0
                seen = slots[first : position + 1]
                kv_heads = np.arange(self.heads) // (self.heads // self.kv_heads)
                keys, values = (x[seen].astype(np.float64) for x in (self.keys, self.values))
                scores = np.einsum("hd,shd->hs", self.q[row], keys[:, kv_heads])
                scores *= self.head_dim**-0.5
                if softcap:
                    scores = softcap * np.tanh(scores / softcap)
                weights = np.exp(scores - scores.max(-1, keepdims=True))
                weights /= weights.sum(-1, keepdims=True)
                out[row] = np.einsum("hs,shd->hd", weights, values[:, kv_heads])
                row += 1
        return out


def error(got: npt.NDArray[np.float32], want: Floats) -> float:
    """Relative, so that the many rows of long contexts, which are small, count as well."""
    return float(np.sqrt(((got - want) ** 2).mean() / (want**2).mean()))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kv_dtype", TOLERANCES)
def test_agrees_with_the_formula(shape: tuple[int, int, int, int], isa: str, kv_dtype: str) -> None:
    case = Case(require_isa(isa), shape, MIXED, kv_dtype=kv_dtype, isa=isa)
    assert error(case.attend(), case.expected()) < TOLERANCES[kv_dtype]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kv_dtype", TOLERANCES)
@pytest.mark.parametrize("window", [1, 12, 16, 33, 200])
def test_windows(isa: str, kv_dtype: str, window: int) -> None:
    for shape in (SHAPES[0], SHAPES[3]):
        case = Case(require_isa(isa), shape, MIXED, kv_dtype=kv_dtype, isa=isa)
        got, want = case.attend(window=window), case.expected(window=window)
        assert error(got, want) < TOLERANCES[kv_dtype]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kv_dtype", TOLERANCES)
def test_soft_caps(isa: str, kv_dtype: str) -> None:
    case = Case(require_isa(isa), SHAPES[0], MIXED, kv_dtype=kv_dtype, isa=isa)
    got, want = case.attend(softcap=3.0), case.expected(softcap=3.0)
    assert error(got, want) < TOLERANCES[kv_dtype]
    assert np.abs(want - case.expected()).max() > 0.1  # the cap was felt


@pytest.mark.parametrize("factor", [1e3, 1e9])
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kv_dtype", TOLERANCES)
def test_large_scores_do_not_overflow(kv_dtype: str, isa: str, factor: float) -> None:
    case = Case(require_isa(isa), SHAPES[0], [(40, 3), (1, 300)], kv_dtype=kv_dtype, isa=isa)
    case.q *= factor
    assert np.isfinite(case.attend()).all()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kv_dtype", TOLERANCES)
def test_each_token_has_the_weight_that_is_its_own(kv_dtype: str, isa: str) -> None:
    """Values of one 1 each: what comes out are the weights, to what eight bits can tell."""
    case = Case(require_isa(isa), (1, 1, 64, 16), [(3, 61)], kv_dtype=kv_dtype, isa=isa)
    exponents = -3 * np.arange(64) / 128  # of two
    case.keys[:], case.values[:], case.q[:] = 0, 0, 0
    slots = case.slots(case.tables[0], 64)
    case.keys[slots, 0, 0] = -np.arange(64) / 64
    case.values[slots, 0] = np.eye(64)
    case.q[:, 0, 0] = 1.5 * np.log(2) * np.sqrt(64)
    case.fill(None, slots)
    want = 2.0**exponents / (2.0**exponents).sum()
    errors = case.attend()[-1, 0] / want - 1
    assert np.abs(errors).max() < 0.01
    assert np.abs(errors.mean()) < 0.001


@pytest.mark.parametrize("broken_at", [330, 512])  # within a part of keys, and its only one seen
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kv_dtype", ["f32", "bf16"])
def test_a_broken_key_breaks_the_rows_that_see_it(
    kv_dtype: str, isa: str, wrong: float, broken_at: int
) -> None:
    """No maximum and no table of weights may swallow what is not a number."""
    batch = [(60, broken_at - 30)]
    case = Case(require_isa(isa), SHAPES[0], batch, kv_dtype=kv_dtype, isa=isa)
    want = case.attend()
    slot = case.slots(case.tables[0], broken_at + 1)[-1:]
    broken = np.full_like(case.keys[slot], wrong)
    case.pool.write(case.cpu, 1, slot, broken, case.values[slot])
    got, first = case.attend(), 30
    assert np.isnan(got[first:]).all()
    np.testing.assert_array_equal(got[:first], want[:first])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kv_dtype", TOLERANCES)
def test_a_row_does_not_depend_on_the_batch_or_the_threads(kv_dtype: str, isa: str) -> None:
    native = require_isa(isa)
    together = Case(native, SHAPES[0], MIXED, kv_dtype=kv_dtype, isa=isa, num_threads=3)
    assert_same_alone(native, together, together.attend())


@pytest.mark.parametrize("shape", [SHAPES[0], SHAPES[4], SHAPES[5]])
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kv_dtype", TOLERANCES)
def test_rows_that_share_blocks_have_the_bits_that_they_have_alone(
    kv_dtype: str, isa: str, shape: tuple[int, int, int, int]
) -> None:
    """Generated tokens after one prefix read it together; some leave it early, one has drafts."""
    native = require_isa(isa)
    batch = [(1, 1100), (1, 700), (3, 650), (1, 300), (1, 20), (1, 522), *[(1, 800)] * 20]
    case = Case(native, shape, batch, kv_dtype=kv_dtype, isa=isa, num_shared=-(-640 // shape[3]))
    case.of_prompts = False
    want = case.attend()
    assert np.isfinite(want).all()
    assert_same_alone(native, case, want)


@pytest.mark.parametrize("num_shared", [0, 40])
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kv_dtype", TOLERANCES)
def test_rows_in_bulk_attend_to_the_same(kv_dtype: str, isa: str, num_shared: int) -> None:
    """By tiles where many read the same blocks."""
    native = require_isa(isa)
    batch = [(1, 1100), (1, 700), (3, 650), (1, 300), (1, 20), (1, 522), *[(1, 800)] * 20]
    case = Case(native, SHAPES[0], batch, kv_dtype=kv_dtype, isa=isa, num_shared=num_shared)
    case.of_prompts = False
    alone = case.attend()
    case.in_bulk = True
    in_bulk = case.attend()
    assert error(in_bulk, case.expected()) < 2 * TOLERANCES[kv_dtype]
    by_tiles = num_shared > 0 and kv_dtype != "f32" and isa == "avx512amx"
    assert (in_bulk == alone).all() != by_tiles


def assert_same_alone(native: Any, together: Case, want: npt.NDArray[np.float32]) -> None:
    """Each sequence's rows of `want`, bit by bit, from a step of its own on one thread."""
    for index, (rows, before) in enumerate(together.batch):
        first = int(together.plan.query_starts[index])
        alone = build_plan(
            [Chunk(token_ids=[0] * rows, start=before, block_ids=together.tables[index])],
            block_size=together.block_size,
        )
        out = np.empty((rows, together.heads, together.head_dim), np.float32)
        together.pool.attend(
            native.Cpu(1, together.cpu.isa),
            1,
            together.q[first : first + rows],
            alone.query_starts,
            alone.context_lens,
            alone.block_tables,
            out,
            together.head_dim**-0.5,
            of_prompts=together.of_prompts,
        )
        np.testing.assert_array_equal(out, want[first : first + rows])


def test_empty_batches_and_sequences_without_rows() -> None:
    native = require_isa("")
    assert Case(native, SHAPES[0], [], kv_dtype="bf16").attend().shape == (0, 9, 64)
    case = Case(native, SHAPES[0], [(0, 5), (2, 1), (0, 0)], kv_dtype="f32")
    assert error(case.attend(), case.expected()) < TOLERANCES["f32"]


@pytest.mark.parametrize("wrong", [-1, 10**6])
def test_block_ids_out_of_range_are_refused(wrong: int) -> None:
    case = Case(require_isa(""), SHAPES[0], [(1, 20)], kv_dtype="bf16")
    case.plan.block_tables[0, 1] = wrong
    with pytest.raises(IndexError):
        case.attend()
    case.plan.context_lens[0] = 400
    with pytest.raises(ValueError, match=r"\w"):
        case.attend()


@pytest.mark.parametrize(
    "changes",
    [
        {"head_dim": 24},
        {"head_dim": 528},
        {"num_blocks": 0},
        {"num_blocks": 1 << 40},
        {"block_size": 257},
        {"kv_dtype": "fp8"},
        {"num_layers": 0},
    ],
)
def test_pools_that_cannot_be_are_refused(changes: dict[str, Any]) -> None:
    native = require_isa("")
    sizes: dict[str, Any] = {
        "num_layers": 1,
        "num_blocks": 1,
        "block_size": 16,
        "num_kv_heads": 1,
        "head_dim": 64,
        "kv_dtype": "bf16",
    }
    native.KvPool(**sizes)
    with pytest.raises(ValueError, match=r"\w"):
        native.KvPool(**(sizes | changes))


@pytest.mark.parametrize("window", [0, 100])
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kv_dtype", TOLERANCES)
def test_a_row_does_not_depend_on_how_its_sequence_is_cut(
    kv_dtype: str, isa: str, window: int
) -> None:
    native = require_isa(isa)
    whole = Case(native, SHAPES[0], [(700, 0)], kv_dtype=kv_dtype, isa=isa)
    want = whole.attend(window=window)
    for start, end in ((699, 700), (255, 257), (300, 700), (10, 11), (512, 520)):
        piece = build_plan(
            [Chunk(token_ids=[0] * (end - start), start=start, block_ids=whole.tables[0])],
            block_size=whole.block_size,
        )
        out = np.empty((end - start, whole.heads, whole.head_dim), np.float32)
        whole.pool.attend(
            native.Cpu(1, isa),
            1,
            whole.q[start:end],
            piece.query_starts,
            piece.context_lens,
            piece.block_tables,
            out,
            whole.head_dim**-0.5,
            0.0,
            window,
            whole.of_prompts,
        )
        np.testing.assert_array_equal(out, want[start:end])

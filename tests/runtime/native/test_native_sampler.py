"""Does the compiled sampler choose what the NumPy sampler chooses?"""

import numpy as np
import numpy.typing as npt
import pytest

from runtime.sampler import BROKEN_ROW, NumpyView, Sampler, SampleRow
from runtime.sampling import SamplingParams
from tests.support.native_models import ISAS, require_isa

Floats = npt.NDArray[np.float32]
SIZES = [1, 15, 97, 1000, 49_152]


def logits_of(size: int, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).normal(0, 4, size).astype(np.float32)


class FakeLogits:
    """What NativeLogits is to the sampler, made of given rows."""

    def __init__(self, rows: Floats, cpu: object, broken_rows: list[int]) -> None:
        self.rows, self.cpu, self.broken_rows = rows, cpu, broken_rows
        self.best_ids = rows.argmax(-1).tolist()

    def __len__(self) -> int:
        return len(self.rows)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("size", SIZES)
def test_largest(isa: str, size: int) -> None:
    native = require_isa(isa)
    cpu, logits = native.Cpu(1, isa), logits_of(size)
    logits[:: max(1, size // 7)] = logits[0]  # ties go by id
    for count in {0, 1, 2, min(40, size), size, size + 9}:
        ids, values, log_sum_exp, broken = native.largest(cpu, logits, count, 0.5)
        assert not broken
        np.testing.assert_array_equal(ids, NumpyView(logits).largest(count) if count else [])
        np.testing.assert_array_equal(values, logits[ids])
        want = np.log(np.exp(logits.astype(np.float64) * 0.5).sum())
        assert log_sum_exp == pytest.approx(want, abs=1e-5)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("size", SIZES)
def test_masks(isa: str, size: int) -> None:
    native = require_isa(isa)
    cpu, logits = native.Cpu(1, isa), logits_of(size)
    words = np.random.default_rng(1).integers(0, 1 << 32, -(-size // 32), dtype=np.uint32)
    words[0] |= 1
    bits = np.unpackbits(words.view(np.uint8), count=size, bitorder="little").astype(np.bool_)
    masked = np.where(bits, logits, np.float32(-np.inf))
    count = min(20, int(bits.sum()))
    ids, _, log_sum_exp, _ = native.largest(cpu, logits, count, 1.0, words)
    np.testing.assert_array_equal(ids, NumpyView(masked).largest(count))
    want = np.log(np.exp(masked.astype(np.float64)).sum())
    assert log_sum_exp == pytest.approx(want, abs=1e-5)
    ids, _, log_sum_exp, broken = native.largest(cpu, logits, 5, 1.0, np.zeros_like(words))
    assert (len(ids), log_sum_exp, broken) == (0, -np.inf, False)
    with pytest.raises(ValueError, match="mask"):
        native.largest(cpu, logits, 5, 1.0, words[:-1])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("size", SIZES)
def test_draws(isa: str, size: int) -> None:
    native = require_isa(isa)
    cpu, logits = native.Cpu(1, isa), logits_of(size)
    logits[size // 2 + 1 :: 3] = -np.inf
    best = float(logits.max())
    for temperature in (0.05, 1.0, 4.0):
        for point in np.random.default_rng(2).random(50):
            want = NumpyView(logits).draw(temperature, best, point)
            got = native.draw(cpu, logits, best, 1 / temperature, point)
            if got != want:  # only where float32 rounds across the edge between both
                between = logits[min(got, want) : max(got, want)].astype(np.float64)
                assert np.exp((between - best) / temperature).sum() < 1e-4
            assert np.isfinite(logits[got])


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("isa", ISAS)
def test_what_is_not_finite_is_found(isa: str, value: float) -> None:
    native = require_isa(isa)
    logits = logits_of(1000)
    for place in (0, 17, 999):
        broken = logits.copy()
        broken[place] = value
        assert native.largest(native.Cpu(1, isa), broken, 3)[3]
    logits[999] = -np.inf
    assert not native.largest(native.Cpu(1, isa), logits, 3)[3]


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(max_tokens=1, temperature=0.0),
        SamplingParams(max_tokens=1, temperature=1.0),
        SamplingParams(max_tokens=1, temperature=0.8, top_k=40),
        SamplingParams(max_tokens=1, temperature=0.8, top_p=0.9),
        SamplingParams(max_tokens=1, temperature=1.5, top_k=300, top_p=0.95),
        SamplingParams(max_tokens=1, temperature=1.0, min_p=0.05),
        SamplingParams(max_tokens=1, temperature=1.0, logit_bias={3: 5.0}),
    ],
)
def test_rows_are_sampled_as_the_definition_says(params: SamplingParams) -> None:
    native = require_isa("")
    from runtime.native_runner import NativeSampler

    rows = np.stack([logits_of(5000, seed) for seed in range(40)])
    wanted = [SampleRow(params=params, rng_seed=seed, step=seed % 5) for seed in range(40)]
    fake = FakeLogits(rows, native.Cpu(1), [])
    got = NativeSampler().sample(fake, wanted)  # type: ignore[arg-type]
    assert got == Sampler().sample(rows, wanted)


def test_broken_rows_fail_alone() -> None:
    native = require_isa("")
    from runtime.native_runner import NativeSampler

    row = SampleRow(params=SamplingParams(max_tokens=1, temperature=0.0), rng_seed=0, step=0)
    fake = FakeLogits(np.stack([logits_of(50), logits_of(50)]), native.Cpu(1), [0])
    broken, whole = NativeSampler().sample(fake, [row, row])  # type: ignore[arg-type]
    assert (broken, whole) == (BROKEN_ROW, int(logits_of(50).argmax()))

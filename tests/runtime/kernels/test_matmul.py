"""Are packed matrices multiplied exactly, in every ggml type, at any size, on every ISA?"""

from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt
import pytest

from runtime.weights.quant import TENSOR_TYPES
from tests.support.blocks import TYPES, Floats, block_items, random_tensor
from tests.support.resources import native_module

if TYPE_CHECKING:
    from runtime._native import Cpu, Matrix

ISAS = ["avx512amx", "avx512vnni", "avx512", "avx2", "portable"]
SHAPES = [(0, 256), (1, 1536), (97, 256), (257, 512)]  # (rows, columns) of the matrix
BATCHES = [0, 1, 7, 13, 70]
Doubles = npt.NDArray[np.float64]
EPSILON = float(np.finfo(np.float32).eps)


def make_cpu(isa: str, num_threads: int = 2) -> "Cpu":
    native = native_module()
    if isa not in native.isas():
        pytest.skip(f"this CPU has no {isa}")
    return cast("Cpu", native.Cpu(num_threads, isa))


def product(cpu: "Cpu", matrix: "Matrix", x: Floats, mode: str) -> Floats:
    out = np.full((len(x), matrix.num_rows), np.nan, np.float32)
    native_module().matmul(cpu, matrix, x, out, mode)
    return out


def quantized(cpu: "Cpu", x: Floats) -> tuple[npt.NDArray[np.int8], Floats, npt.NDArray[np.int32]]:
    """The codes, scales and sums of codes that ``x`` gets."""
    groups = (len(x), x.shape[1] // 32)
    codes, scales = np.empty(x.shape, np.int8), np.empty(groups, np.float32)
    sums = np.empty(groups, np.int32)
    native_module().quantize(cpu, x, codes, scales, sums)
    return codes, scales, sums


def require_close(got: Floats, x: Floats | Doubles, weight: Floats) -> None:
    """Within the bound of a float32 dot product in any order of summation.

    Scaled codes and minimums may be summed apart: a weight counts as its row's largest.
    """
    wide_x, wide_weight = x.astype(np.float64), weight.astype(np.float64)
    largest = np.abs(wide_weight).max(axis=1, initial=0)
    scale = np.abs(wide_x).sum(axis=1, keepdims=True) * largest
    assert got.shape == scale.shape
    error = np.abs(got - wide_x @ wide_weight.T)
    assert (error <= EPSILON * scale * 4).all()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_products_are_those_of_the_dequantized_weights(
    isa: str, name: str, shape: tuple[int, int]
) -> None:
    cpu, rng = make_cpu(isa), np.random.default_rng(shape[0])
    raw, weight = random_tensor(name, *shape, rng)
    matrix = native_module().Matrix.pack(cpu, TYPES[name], raw, *shape)
    for num_rows in BATCHES:
        x = rng.normal(0, 1, (num_rows, shape[1])).astype(np.float32)
        require_close(product(cpu, matrix, x, "f32"), x, weight)
        if matrix.takes_int8:
            # What int8 activations stand for, multiplied exactly: only float32 rounding is left.
            codes, scales, _ = quantized(cpu, x)
            meant = codes.astype(np.float64) * np.repeat(scales, 32, axis=1)
            require_close(product(cpu, matrix, x, "int8"), meant, weight)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", TYPES)
def test_a_row_of_a_matrix_is_dequantized_exactly(isa: str, name: str) -> None:
    cpu, rng = make_cpu(isa, 1), np.random.default_rng(3)
    raw, weight = random_tensor(name, 37, 512, rng)
    matrix = native_module().Matrix.pack(cpu, TYPES[name], raw, 37, 512)
    got = np.empty_like(weight)
    for row, out in enumerate(got):
        matrix.dequantize_row(row, out)
    if TYPES[name] in TENSOR_TYPES:
        oracle = TENSOR_TYPES[TYPES[name]].dequantize(raw).reshape(weight.shape)
        np.testing.assert_array_equal(got, oracle)
    np.testing.assert_array_equal(got, weight)
    with pytest.raises(ValueError, match="out of range"):
        matrix.dequantize_row(37, got[0])


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("num_cols", [32, 96, 576, 1536])
def test_quantized_rows_are_the_nearest_codes(isa: str, num_cols: int) -> None:
    cpu, rng = make_cpu(isa, 1), np.random.default_rng(num_cols)
    x = rng.normal(0, 1, (5, num_cols)).astype(np.float32)
    x[1, :32] = 0
    x[2, :32] = np.arange(32) * 4  # 124 at most: products with 127 / 124 meet few ties
    codes, scales, sums = quantized(cpu, x)
    groups = x.reshape(5, -1, 32)
    most = np.abs(groups).max(axis=2)
    np.testing.assert_array_equal(scales, most / np.float32(127))
    exact = np.divide(
        groups * 127.0, most[:, :, None], where=most[:, :, None] > 0, out=groups * 0.0
    )
    grouped = codes.reshape(5, -1, 32)
    assert np.abs(grouped - exact).max() <= 0.5 + 1e-5
    np.testing.assert_array_equal(np.abs(grouped).max(axis=2), np.where(most > 0, 127, 0))
    np.testing.assert_array_equal(sums, grouped.sum(axis=2, dtype=np.int32))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("mode", ["int8", "f32"])
@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q8_0", "Q6_K", "Q2_K", "Q5_1"])
def test_a_row_does_not_depend_on_its_batch(isa: str, mode: str, name: str) -> None:
    cpu, rng = make_cpu(isa), np.random.default_rng(5)
    raw, _ = random_tensor(name, 97, 1536, rng)
    matrix = native_module().Matrix.pack(cpu, TYPES[name], raw, 97, 1536)
    x = rng.normal(0, 1, (133, 1536)).astype(np.float32)
    alone = np.concatenate([product(cpu, matrix, row[None], mode) for row in x])
    for num_rows in (2, 3, 5, 12, 15, 133):
        np.testing.assert_array_equal(product(cpu, matrix, x[:num_rows], mode), alone[:num_rows])


@pytest.mark.parametrize("name", sorted(TYPES.keys() - {"F16", "BF16", "F32"}))
def test_tiles_give_the_bits_that_vectors_give(name: str) -> None:
    """From 16 rows on `avx512amx` multiplies by tiles, whole and partial ones."""
    tiles, vectors = make_cpu("avx512amx"), make_cpu("avx512vnni")
    raw, _ = random_tensor(name, 97, 512, np.random.default_rng(4))
    matrices = [
        native_module().Matrix.pack(cpu, TYPES[name], raw, 97, 512) for cpu in (tiles, vectors)
    ]
    for num_rows in (15, 16, 17, 33, 129):
        x = np.random.default_rng(num_rows).normal(0, 1, (num_rows, 512)).astype(np.float32)
        by_tiles, by_vectors = (
            product(cpu, matrix, x, "int8")
            for cpu, matrix in zip((tiles, vectors), matrices, strict=True)
        )
        assert np.array_equal(by_tiles, by_vectors)


@pytest.mark.parametrize("name", sorted(TYPES.keys() - {"F16", "BF16", "F32"}))
@pytest.mark.parametrize("shape", [(1, 256), (97, 512), (96, 1536)])
def test_rows_of_bf16_are_multiplied_by_weights_of_bf16(name: str, shape: tuple[int, int]) -> None:
    """In any company alike, and no further from the exact product than rounding both brings."""
    cpu, rng = make_cpu("avx512amx"), np.random.default_rng(shape[0])
    raw, weight = random_tensor(name, *shape, rng)
    matrix = native_module().Matrix.pack(cpu, TYPES[name], raw, *shape)
    x = rng.normal(0, 1, (70, shape[1])).astype(np.float32)
    exact = x.astype(np.float64) @ weight.T.astype(np.float64)
    alone = np.concatenate([product(cpu, matrix, row[None], "bf16") for row in x])
    most = (2**-8 + 2**-16) * (np.abs(x) @ np.abs(weight.T))
    assert (np.abs(alone - exact) <= most).all()
    assert np.sqrt(np.mean((alone - exact) ** 2) / np.mean(exact**2)) < 0.004
    for num_rows in (2, 16, 17, 32, 45, 70):
        np.testing.assert_array_equal(product(cpu, matrix, x[:num_rows], "bf16"), alone[:num_rows])
    matrix.widen(cpu)
    np.testing.assert_array_equal(product(cpu, matrix, x, "bf16"), alone)
    stream = rng.normal(0, 1, alone.shape).astype(np.float32)
    out = stream.copy()
    native_module().matmul(cpu, matrix, x, out, "bf16", add=True)
    np.testing.assert_allclose(out, stream + alone, rtol=1e-5, atol=1e-5 * np.abs(alone).max())


def rotated(cpu: "Cpu", name: str, raw: npt.NDArray[np.uint8], shape: tuple[int, int]) -> "Matrix":
    matrix = native_module().Matrix.pack(cpu, TYPES[name], raw, *shape)
    assert not matrix.takes_rotated
    matrix.rotate(cpu)
    return cast("Matrix", matrix)


def rotated_and_rounded(x: Floats) -> Doubles:
    """Rows times Hadamard's matrix, 64 inputs at a time, as int8 of a scale for each part."""
    hadamard = np.ones((1, 1))
    while len(hadamard) < 64:
        hadamard = np.block([[hadamard, hadamard], [hadamard, -hadamard]])
    steps = -(-x.shape[1] // 64)
    padded = np.zeros((len(x), steps * 64))
    padded[:, : x.shape[1]] = x
    turned = (padded.reshape(len(x), steps, 64) @ hadamard).reshape(padded.shape)
    parts = -(-steps // 9)
    cuts = [steps * part // parts * 64 for part in range(1, parts)]
    rounded = []
    for piece in np.split(turned, cuts, axis=1):
        scale = np.abs(piece).max(axis=1, keepdims=True) / 127
        rounded.append(np.rint(piece / scale) * scale)
    return np.concatenate(rounded, axis=1)


@pytest.mark.parametrize("name", sorted(TYPES.keys() - {"F16", "BF16", "F32"}))
@pytest.mark.parametrize("shape", [(1, 256), (97, 512), (96, 1536), (40, 1280)])
def test_rotated_rows_are_multiplied_by_rotated_weights(name: str, shape: tuple[int, int]) -> None:
    """In any company alike, as plain arithmetic over the same codes has it."""
    cpu, rng = make_cpu("avx512amx"), np.random.default_rng(shape[0])
    raw, weight = random_tensor(name, *shape, rng)
    matrix = rotated(cpu, name, raw, shape)
    x = rng.normal(0, 1, (70, shape[1])).astype(np.float32)
    x[:, 3] *= 50  # what stands out
    exact = x.astype(np.float64) @ weight.T.astype(np.float64)
    alone = np.concatenate([product(cpu, matrix, row[None], "rotated") for row in x])
    want = rotated_and_rounded(x) @ rotated_and_rounded(weight).T / 64
    error = np.sqrt(np.mean((alone - want) ** 2) / np.mean(exact**2))
    assert error < 2e-3  # few codes are at the middle, where a rounding decides
    sizes = np.linalg.norm(x, axis=1)[:, None] * np.linalg.norm(weight, axis=1)
    assert np.sqrt(np.mean(((alone - exact) / sizes) ** 2)) < 2e-3
    for num_rows in (2, 16, 17, 32, 45, 70):
        np.testing.assert_array_equal(
            product(cpu, matrix, x[:num_rows], "rotated"), alone[:num_rows]
        )
    stream = rng.normal(0, 1, alone.shape).astype(np.float32)
    out = stream.copy()
    native_module().matmul(cpu, matrix, x, out, "rotated", add=True)
    np.testing.assert_allclose(out, stream + alone, rtol=1e-5, atol=1e-5 * np.abs(alone).max())


@pytest.mark.parametrize("shape", [(3, 32), (33, 96), (16, 608)])
def test_rotated_widths_need_not_be_whole(shape: tuple[int, int]) -> None:
    cpu, rng = make_cpu("avx512amx"), np.random.default_rng(9)
    raw, weight = random_tensor("Q8_0", *shape, rng)
    matrix = rotated(cpu, "Q8_0", raw, shape)
    x = rng.normal(0, 1, (33, shape[1])).astype(np.float32)
    x[5], x[6, 7] = 0, np.nan
    out, exact = product(cpu, matrix, x, "rotated"), x @ weight.T
    assert np.sqrt(np.nanmean((out - exact) ** 2) / np.nanmean(exact**2)) < 0.03
    assert (out[5] == 0).all()
    assert np.isnan(out[6]).all()


@pytest.mark.parametrize("isa", [isa for isa in ISAS if isa != "avx512amx"])
def test_without_tiles_nothing_is_rotated(isa: str) -> None:
    cpu = make_cpu(isa)
    raw, _ = random_tensor("Q8_0", 4, 64, np.random.default_rng(1))
    matrix = rotated(cpu, "Q8_0", raw, (4, 64))
    assert not matrix.takes_rotated
    with pytest.raises(ValueError, match="rotated form"):
        product(cpu, matrix, np.zeros((1, 64), np.float32), "rotated")


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("mode", ["int8", "f32"])
def test_products_are_added_to_the_residual_stream(isa: str, mode: str) -> None:
    cpu, rng = make_cpu(isa), np.random.default_rng(6)
    raw, _ = random_tensor("Q4_1", 41, 64, rng)
    matrix = native_module().Matrix.pack(cpu, 3, raw, 41, 64)
    x = rng.normal(0, 1, (9, 64)).astype(np.float32)
    stream = rng.normal(0, 1, (9, 41)).astype(np.float32)
    out = stream.copy()
    native_module().matmul(cpu, matrix, x, out, mode, add=True)
    np.testing.assert_array_equal(out, stream + product(cpu, matrix, x, mode))


@pytest.mark.parametrize("name", ["Q4_1", "Q8_0", "F16"])
def test_stacked_parts_are_one_matrix(name: str) -> None:
    native = native_module()
    cpu, rng = native.Cpu(3), np.random.default_rng(7)
    raws, weights = zip(
        *(random_tensor(name, rows, 96, rng) for rows in (5, 0, 33, 16)), strict=True
    )
    parts = [(TYPES[name], raw, len(w)) for raw, w in zip(raws, weights, strict=True)]
    matrix = native.Matrix.stack(cpu, parts, 96)
    whole = native.Matrix.pack(cpu, TYPES[name], np.concatenate(raws), 54, 96)
    x = rng.normal(0, 1, (3, 96)).astype(np.float32)
    np.testing.assert_array_equal(product(cpu, matrix, x, "f32"), product(cpu, whole, x, "f32"))


def test_types_with_one_layout_stack() -> None:
    native = native_module()
    q5_0, q8_0, q4_1 = TYPES["Q5_0"], TYPES["Q8_0"], TYPES["Q4_1"]
    assert native.Matrix.pack_alike(q5_0, q8_0)
    assert not native.Matrix.pack_alike(q4_1, q8_0)
    cpu, rng = native.Cpu(2), np.random.default_rng(8)
    five, five_values = random_tensor("Q5_0", 7, 64, rng)
    eight, eight_values = random_tensor("Q8_0", 12, 64, rng)
    matrix = native.Matrix.stack(cpu, [(q5_0, five, 7), (q8_0, eight, 12)], 64)
    x = rng.normal(0, 1, (2, 64)).astype(np.float32)
    weight = np.concatenate([five_values, eight_values])
    require_close(product(cpu, matrix, x, "f32"), x, weight)


@pytest.mark.parametrize("num_cols", [1, 33, 97])
@pytest.mark.parametrize("name", ["F32", "F16", "BF16"])
def test_plain_numbers_have_any_width(name: str, num_cols: int) -> None:
    native = native_module()
    cpu, rng = native.Cpu(2), np.random.default_rng(num_cols)
    raw, weight = random_tensor(name, 19, num_cols, rng)
    matrix = native.Matrix.pack(cpu, TYPES[name], raw, 19, num_cols)
    assert not matrix.takes_int8
    x = rng.normal(0, 1, (5, num_cols)).astype(np.float32)
    require_close(product(cpu, matrix, x, "f32"), x, weight)


@pytest.mark.parametrize("name", ["F16", "Q4_1", "Q8_0"])
def test_every_half_is_kept(name: str) -> None:
    native = native_module()
    bits = np.arange(0x10000, dtype=np.uint16)
    halves = bits[(bits & 0x7C00) != 0x7C00].view("<f2")
    cpu = native.Cpu(1)
    if name == "F16":
        raw = halves.view(np.uint8)
        rows, cols = len(halves) // 32, 32
    else:  # each half a scale, of codes that are 1
        blocks = np.zeros((len(halves), 20 if name == "Q4_1" else 34), np.uint8)
        blocks[:, :2] = halves.reshape(-1, 1).view(np.uint8)
        blocks[:, 4 if name == "Q4_1" else 2 :] = 0x11 if name == "Q4_1" else 1
        raw, rows, cols = blocks.reshape(-1), len(halves) // 32, 1024
    matrix = native.Matrix.pack(cpu, TYPES[name], raw, rows, cols)
    want = TENSOR_TYPES[TYPES[name]].dequantize(raw).reshape(rows, cols)
    got = np.empty_like(want)
    for row, out in enumerate(got):
        matrix.dequantize_row(row, out)
    np.testing.assert_array_equal(got, want)
    eye = np.eye(cols, dtype=np.float32)[:32]  # kernels convert in registers
    np.testing.assert_array_equal(product(cpu, matrix, eye, "f32"), want.T[:32])


@pytest.mark.parametrize("name", TYPES)
def test_sizes_that_do_not_fit_are_refused(name: str) -> None:
    native = native_module()
    cpu, cols = native.Cpu(1), max(32, block_items(name))
    raw, _ = random_tensor(name, 4, cols, np.random.default_rng(9))
    for data, rows, width in ((raw[:-1], 4, cols), (raw, 5, cols), (raw, -1, cols), (raw, 4, 0)):
        with pytest.raises(ValueError, match=r"size|range"):
            native.Matrix.pack(cpu, TYPES[name], data, rows, width)
    if block_items(name) > 1:
        with pytest.raises(ValueError, match="multiples of"):
            native.Matrix.pack(cpu, TYPES[name], raw, 4, cols - 1)


def test_wrong_threads_and_instruction_sets_are_refused() -> None:
    native = native_module()
    with pytest.raises(ValueError, match="num_threads"):
        native.Cpu(0)
    with pytest.raises(ValueError, match="instruction set"):
        native.Cpu(1, "mmx")


def test_wrong_arguments_are_refused() -> None:
    native = native_module()
    cpu = native.Cpu(1)
    raw, _ = random_tensor("Q4_1", 4, 32, np.random.default_rng(10))
    plain, _ = random_tensor("F32", 4, 32, np.random.default_rng(10))
    matrix, numbers = (
        native.Matrix.pack(cpu, 3, raw, 4, 32),
        native.Matrix.pack(cpu, 0, plain, 4, 32),
    )
    x, out = np.zeros((2, 32), np.float32), np.zeros((2, 4), np.float32)
    for wrong in (
        (matrix, x[:, :16].copy(), out, "int8"),
        (matrix, x, out[:1], "int8"),
        (matrix, x, out, "int9"),
        (numbers, x, out, "int8"),
    ):
        with pytest.raises(ValueError, match=r"has|have|mode|only"):
            native.matmul(cpu, *wrong)
    with pytest.raises(ValueError, match="not supported"):
        native.Matrix.pack(cpu, 4, raw, 4, 32)
    with pytest.raises(ValueError, match="alike"):
        native.Matrix.stack(cpu, [(3, raw, 4), (0, plain, 4)], 32)
    with pytest.raises(ValueError, match="at least one"):
        native.Matrix.stack(cpu, [], 32)


def test_a_pass_over_matrices_is_timed() -> None:
    native = native_module()
    cpu = native.Cpu(2)
    raw, _ = random_tensor("Q4_1", 64, 64, np.random.default_rng(11))
    matrix = native.Matrix.pack(cpu, 3, raw, 64, 64)
    seconds = native.time_matmul(cpu, [matrix, matrix], 3, "int8", 5)
    assert len(seconds) == 5
    assert all(0 < s < 10 for s in seconds)

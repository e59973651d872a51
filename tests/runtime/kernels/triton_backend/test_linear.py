"""Triton's matrix products against their references, in the interpreter."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from runtime.kernels.linear_fp8 import reference as fp8_reference  # noqa: E402
from runtime.kernels.linear_fp8 import triton as fp8_triton  # noqa: E402
from runtime.kernels.linear_w4a16 import GROUP, W4Matrix  # noqa: E402
from runtime.kernels.linear_w4a16 import reference as w4_reference  # noqa: E402
from runtime.kernels.linear_w4a16 import triton as w4_triton  # noqa: E402

# Rows around the tiles' own, inputs and outputs that fill no tile.
SHAPES = [(0, 32, 16), (1, 64, 97), (17, 160, 40), (65, 96, 33)]


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(11)


@pytest.mark.parametrize(("num_rows", "num_inputs", "num_outputs"), SHAPES)
def test_linear_w4a16(num_rows: int, num_inputs: int, num_outputs: int) -> None:
    weight = W4Matrix(
        quants=torch.randint(0, 256, (num_outputs, num_inputs // 2), dtype=torch.uint8),
        scales=torch.rand(num_outputs, num_inputs // GROUP).half(),
        minimums=torch.randn(num_outputs, num_inputs // GROUP).half(),
    )
    x = torch.randn(num_rows, num_inputs)
    want = w4_reference.linear_w4a16(x, weight)
    torch.testing.assert_close(w4_triton.linear_w4a16(x, weight), want, rtol=1e-4, atol=1e-3)


def test_nibbles_lie_as_in_gguf() -> None:
    """Byte 0 of a group is input 0, low, and input 16, high."""
    quants = torch.zeros((1, GROUP // 2), dtype=torch.uint8)
    quants[0, 0] = 0x21
    one, none = torch.ones(1, 1).half(), torch.zeros(1, 1).half()
    dense = w4_reference.dequantize(W4Matrix(quants=quants, scales=one, minimums=none))
    assert dense[0].nonzero().flatten().tolist() == [0, 16]
    assert dense[0, [0, 16]].tolist() == [1, 2]


@pytest.mark.parametrize(("num_rows", "num_inputs", "num_outputs"), SHAPES)
def test_linear_fp8(num_rows: int, num_inputs: int, num_outputs: int) -> None:
    x = fp8_reference.quantize_rows(torch.randn(num_rows, num_inputs))
    weight = fp8_reference.quantize_rows(torch.randn(num_outputs, num_inputs))
    got = fp8_triton.linear_fp8(x, weight, torch.float32)
    want = fp8_reference.linear_fp8(x, weight, torch.float32)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_rows_in_fp8_keep_their_values() -> None:
    matrix = torch.randn(7, 96) * torch.logspace(-3, 3, 7).unsqueeze(1)
    matrix[3] = 0
    packed = fp8_reference.quantize_rows(matrix)
    error = (packed.values.float() * packed.scales.unsqueeze(1) - matrix).abs().amax(-1)
    assert (error <= matrix.abs().amax(-1) * 2**-4).all()
    assert packed.scales[3] == 0

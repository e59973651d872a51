"""Does the compiled linear layer err no more than torch does, at any size?"""

import pytest
import torch

from runtime.kernels.linear import Linear, reference
from tests.support.resources import native_module

ISAS = ["avx512", "avx2", "portable"]
SIZES = [1, 2, 7, 16, 97, 257]


def native_linear(isa: str) -> Linear:
    if isa not in native_module().isas():
        pytest.skip(f"this CPU has no {isa}")
    from runtime import _native
    from runtime.kernels.linear.native import NativeLinear

    return NativeLinear(_native.Cpu(3, isa))


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 8, 11, 33])
@pytest.mark.parametrize("width", SIZES)
@pytest.mark.parametrize("with_add", [False, True])
@pytest.mark.parametrize("isa", ISAS)
def test_native_agrees_with_the_reference(rows: int, width: int, with_add: bool, isa: str) -> None:
    linear, oracle = native_linear(isa), reference.create(num_threads=1)
    for outputs in SIZES:
        generator = torch.Generator().manual_seed(outputs)
        x = torch.randn(rows, width, generator=generator)
        weight = torch.randn(outputs, width, generator=generator)
        add = torch.randn(rows, outputs, generator=generator) if with_add else None
        exact = oracle(x.double(), weight.double(), None if add is None else add.double())
        got, plain = linear(x, weight, add), oracle(x, weight, add)
        assert got.shape == (rows, outputs)
        # Sums in any order: the bound of a dot product, not torch's luck with tiny ones.
        scale = x.double().abs() @ weight.double().abs().t()
        scale += 0 if add is None else add.abs()
        bound = torch.finfo(torch.float32).eps * scale * max(2.0, width**0.5)
        assert ((got.double() - exact).abs() <= 2 * (plain.double() - exact).abs() + bound).all()


def test_native_refuses_arrays_that_do_not_fit() -> None:
    native = native_module()
    cpu, x, weight, out = native.Cpu(1), *map(torch.ones, [(2, 4), (3, 4), (2, 3)])
    for wrong in (
        (x[:, :3].contiguous(), weight, None, out),
        (x, weight, None, out[:1]),
        (x, weight, out[:1], out),
    ):
        with pytest.raises(ValueError, match=r"have|has"):
            native.linear(cpu, *wrong)
    for wrong in (
        (x.double(), weight, None, out),
        (x, weight.t(), None, out),
        (x, weight, None, out.double()),
    ):
        with pytest.raises(TypeError):
            native.linear(cpu, *wrong)
    native.linear(cpu, x, weight, out, out)  # adding in place is allowed
    assert torch.equal(out, torch.full((2, 3), 5.0))

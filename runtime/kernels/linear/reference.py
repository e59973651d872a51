"""Plain torch: oracle and CPU path of ``linear``."""

from runtime.kernels.linear import Linear
from runtime.kernels.linear.dispatch import LinearByWeight
from runtime.kernels.linear_fp8.reference import linear_fp8, quantize_rows
from runtime.kernels.linear_w4a16.reference import linear_w4a16


def create() -> Linear:
    return LinearByWeight(w4a16=linear_w4a16, fp8=linear_fp8, quantize_rows=quantize_rows)

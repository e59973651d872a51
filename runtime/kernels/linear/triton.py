"""GPU backend of ``linear``: cuBLAS for dense weights, Triton for packed ones."""

from runtime.kernels.linear import Linear
from runtime.kernels.linear.dispatch import LinearByWeight
from runtime.kernels.linear_fp8.triton import linear_fp8
from runtime.kernels.linear_w4a16.triton import linear_w4a16
from runtime.kernels.rms_norm_quantize.triton import quantize_rows


def create() -> Linear:
    return LinearByWeight(w4a16=linear_w4a16, fp8=linear_fp8, quantize_rows=quantize_rows)

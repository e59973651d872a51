"""Plain torch: oracle of ``rms_norm_quantize``."""

import torch
from torch import Tensor

from runtime.kernels.linear_fp8 import Fp8Matrix
from runtime.kernels.linear_fp8.reference import quantize_rows
from runtime.kernels.rms_norm.reference import rms_norm


def rms_norm_quantize(x: Tensor, weight: Tensor, eps: float) -> Fp8Matrix:
    """See ``runtime.kernels.rms_norm_quantize.RmsNormQuantize``."""
    return quantize_rows(rms_norm(x.to(torch.float32), weight, eps))

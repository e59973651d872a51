"""Which implementation of each operator does a device run?

An operator is a folder here: ``__init__.py`` states its contract, ``reference.py`` is plain torch
and the oracle, any other module is a faster backend of the same contract. A device lists backends
in order of preference; the first that has the operator and can be imported is taken.
"""

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runtime.kernels.linear import Linear
from runtime.kernels.linear_fp8 import LinearFp8
from runtime.kernels.paged_attention import PagedAttention
from runtime.kernels.rms_norm import RmsNorm
from runtime.kernels.rms_norm_quantize import RmsNormQuantize
from runtime.kernels.rope_kv_write import RopeKvWrite
from runtime.kernels.swiglu import SwiGlu

REFERENCE = "reference"
OPERATORS: Mapping[str, tuple[str, ...]] = {
    "linear": ("triton", REFERENCE),
    "linear_fp8": ("triton", REFERENCE),
    "paged_attention": ("triton", REFERENCE),
    "rms_norm": ("triton", REFERENCE),
    "rms_norm_quantize": ("triton", REFERENCE),
    "rope_kv_write": ("triton", REFERENCE),
    "swiglu": ("triton", REFERENCE),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """One implementation per operator."""

    linear: Linear
    linear_fp8: LinearFp8
    paged_attention: PagedAttention
    rms_norm: RmsNorm
    rms_norm_quantize: RmsNormQuantize
    rope_kv_write: RopeKvWrite
    swiglu: SwiGlu


def load_kernels(backends: Sequence[str]) -> Kernels:
    """The operators from the most preferred of ``backends``; references where none has one."""
    return Kernels(
        linear=find_backend("linear", backends).create(),
        linear_fp8=find_backend("linear_fp8", backends).linear_fp8,
        paged_attention=find_backend("paged_attention", backends).create(),
        rms_norm=find_backend("rms_norm", backends).rms_norm,
        rms_norm_quantize=find_backend("rms_norm_quantize", backends).rms_norm_quantize,
        rope_kv_write=find_backend("rope_kv_write", backends).rope_kv_write,
        swiglu=find_backend("swiglu", backends).swiglu,
    )


def find_backend(operator: str, backends: Sequence[str]) -> Any:
    """The backend's module."""
    for backend in (*backends, REFERENCE):
        if backend not in OPERATORS[operator]:
            continue
        try:
            return importlib.import_module(f"runtime.kernels.{operator}.{backend}")
        except ImportError:
            if backend == REFERENCE:
                raise
            continue  # Triton is optional
    raise AssertionError(f"{operator} has no reference")

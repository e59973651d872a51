"""A gated unit's gate: y = act(gate) * up [Shazeer 2020]; silu, or GELU by its tanh formula."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from runtime.models.config import Activation


class SwiGlu(Protocol):
    """gate_up: (T, 2 F), the gate's half first -> (T, F); may overwrite ``gate_up``."""

    def __call__(self, gate_up: Tensor, activation: Activation = "silu") -> Tensor: ...

"""The compiled kernels; built from runtime/native, absent in a pure wheel."""

from typing import Any

from runtime.plan import Int32Array

def isas() -> tuple[str, ...]:
    """The instruction sets usable on this CPU, the best first: avx512, avx2, portable."""

class Cpu:
    """``num_threads - 1`` parked threads and the caller; one call at a time."""

    def __init__(self, num_threads: int, isa: str = "") -> None:
        """``isa`` is one of ``isas()``, empty for the best.

        Raises: ValueError for another, or unless 1 <= num_threads <= 256.
        """

    @property
    def num_threads(self) -> int: ...
    @property
    def isa(self) -> str: ...

class AttentionStep:
    """A checked copy of one step's ragged batch; reusable for every layer."""

    def __init__(
        self,
        query_starts: Int32Array,
        context_lens: Int32Array,
        block_tables: Int32Array,
        *,
        num_blocks: int,
        block_size: int,
    ) -> None:
        """Raises: ValueError when the arrays contradict each other."""

def paged_attention(
    cpu: Cpu,
    step: AttentionStep,
    q: Any,
    k_cache: Any,
    v_cache: Any,
    out: Any,
    scale: float,
) -> None:
    """Fill ``out`` (T, H, D); float32 arrays on the CPU, by DLPack.  The GIL is released.

    ``q`` may have a stride between tokens; the caches and ``out`` are contiguous.

    Raises: ValueError when shapes do not fit; TypeError for another dtype, device or layout.
    """

def linear(cpu: Cpu, x: Any, weight: Any, add: Any | None, out: Any) -> None:
    """``out`` (T, O) = ``x`` (T, I) ``weight`` (O, I)^T + ``add`` (T, O); float32, contiguous.

    ``out`` must not overlap ``x`` or ``weight``; it may be ``add``.  The GIL is released.

    Raises: ValueError when shapes do not fit; TypeError for another dtype, device or layout.
    """

"""The compiled kernels; built from runtime/native, absent in a pure wheel."""

from collections.abc import Sequence
from typing import Any

from runtime.plan import Int32Array

def isas() -> tuple[str, ...]:
    """Those usable on this CPU, the best first: avx512vnni, avx512, avx2, portable."""

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

class Matrix:
    """Weights packed for the kernels, every ggml type exactly; immutable."""

    @staticmethod
    def pack(cpu: Cpu, ggml_type: int, data: Any, num_rows: int, num_cols: int) -> Matrix:
        """From ``data`` (bytes,) uint8: the blocks of (num_rows, num_cols) as in a GGUF file.

        Raises: ValueError for an unknown type or sizes that do not fit, also when columns are no
        multiple of the type's block.
        """

    @staticmethod
    def stack(cpu: Cpu, parts: Sequence[tuple[int, Any, int]], num_cols: int) -> Matrix:
        """One matrix of all parts' rows; a part is (ggml type, data, number of rows).

        Raises: ValueError as ``pack``, and when the types do not ``pack_alike``.
        """

    @staticmethod
    def pack_alike(ggml_type: int, other: int) -> bool:
        """May parts of both types be stacked?  Raises: ValueError for an unknown type."""

    @property
    def num_rows(self) -> int: ...
    @property
    def num_cols(self) -> int: ...
    @property
    def num_bytes(self) -> int:
        """Packed size, as a pass over the matrix reads it."""

    @property
    def takes_int8(self) -> bool:
        """Packed integers take int8 activations; plain numbers only float32 ones."""

    def dequantize_row(self, row: int, out: Any) -> None:
        """Fill ``out`` (num_cols,) float32.  Raises: ValueError when it does not fit."""

def matmul(cpu: Cpu, matrix: Matrix, x: Any, out: Any, mode: str, *, add: bool = False) -> None:
    """``out`` (T, rows) = or += ``x`` (T, cols) times the matrix transposed; float32.

    ``mode`` "int8" quantizes ``x`` in groups of 32 first, "f32" does not. The GIL is released.

    Raises: ValueError for another mode or shapes that do not fit; TypeError for another layout.
    """

def quantize(cpu: Cpu, x: Any, codes: Any, scales: Any, sums: Any) -> None:
    """``x`` (T, I) as int8 codes (T, I); scales and sums of codes (float32, int32) (T, I / 32)."""

def time_matmul(
    cpu: Cpu, matrices: Sequence[Matrix], num_rows: int, mode: str, num_passes: int
) -> list[float]:
    """Seconds of each pass: all matrices in turn as in a step, quantization and barriers included.

    Raises: ValueError unless 1 <= num_rows <= 4096 and 1 <= num_passes <= 10000.
    """

"""The compiled kernels; built from runtime/native, absent in a pure wheel."""

from collections.abc import Mapping, Sequence
from typing import Any

from runtime.plan import BoolArray, Float32Array, Int32Array, Int64Array

def isas() -> tuple[str, ...]:
    """Those usable on this CPU, the best first: avx512amx, avx512vnni, avx512, avx2, portable."""

class Cpu:
    """``num_threads - 1`` parked threads and the caller; one call at a time."""

    def __init__(self, num_threads: int, isa: str = "") -> None:
        """``isa`` is one of ``isas()``, empty for the best.

        Raises: ValueError for another, or unless 1 <= num_threads <= 256; RuntimeError when the
        system has no more threads.
        """

    @property
    def num_threads(self) -> int: ...
    @property
    def isa(self) -> str: ...
    @property
    def takes_bf16(self) -> bool:
        """Whether ``matmul`` has a mode "bf16"."""

class Matrix:
    """Weights packed for the kernels, every ggml type exactly; only forms can be added."""

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

    @property
    def takes_rotated(self) -> bool:
        """Whether ``rotate`` has added its form."""

    @property
    def rotated_bytes(self) -> int:
        """Of the form that ``rotate`` added; 0 without."""

    @property
    def widened_bytes(self) -> int:
        """Of the form that ``widen`` added; 0 without."""

    def rotate(self, cpu: Cpu) -> None:
        """Add a form for the mode "rotated", a byte for each weight, which suits many rows.

        Plain numbers, and CPUs without tiles, have none.
        """

    def widen(self, cpu: Cpu) -> None:
        """Keep the weights as bf16 too: the mode "bf16" then gives the same in less time."""

    def dequantize_row(self, row: int, out: Any) -> None:
        """Fill ``out`` (num_cols,) float32.  Raises: ValueError when it does not fit."""

def matmul(cpu: Cpu, matrix: Matrix, x: Any, out: Any, mode: str, *, add: bool = False) -> None:
    """``out`` (T, rows) = or += ``x`` (T, cols) times the matrix transposed; float32.

    ``mode`` "int8" quantizes ``x`` in groups of 32 first, "bf16" rounds it and the weights,
    "rotated" turns both and quantizes them in parts of up to 576, "f32" does nothing. The GIL is
    released.

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

class KvPool:
    """Keys and values of all layers by block; costs memory as blocks are first written."""

    def __init__(
        self,
        *,
        num_layers: int,
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_dim: int,
        kv_dtype: str,
    ) -> None:
        """``kv_dtype``: f32, bf16, or int8 with a scale per token and head.

        Raises: ValueError for sizes out of range; MemoryError.
        """

    @property
    def num_blocks(self) -> int: ...
    @property
    def block_bytes(self) -> int: ...
    def write(self, cpu: Cpu, layer: int, slots: Any, keys: Any, values: Any) -> None:
        """Token i, ``keys[i]`` and ``values[i]`` (T, K, D) float32, goes to ``slots[i]`` (int64).

        Raises: ValueError.
        """

    def attend(
        self,
        cpu: Cpu,
        layer: int,
        q: Any,
        query_starts: Int32Array,
        context_lens: Int32Array,
        block_tables: Int32Array,
        out: Any,
        scale: float,
        softcap: float = 0.0,
        window: int = 0,
        of_prompts: bool = False,
        in_bulk: bool = False,
    ) -> None:
        """Fill ``out`` (T, H, D) as ``runtime.kernels.paged_attention`` says; float32.

        ``of_prompts``: by the kernel that prompts take, which is another where there are tiles;
        ``in_bulk``: as sequences that may depend on each other.

        Raises: ValueError when arrays contradict each other; IndexError for unknown blocks.
        """

def kv_block_bytes(
    num_layers: int, num_kv_heads: int, head_dim: int, block_size: int, kv_dtype: str
) -> int:
    """Bytes of one block in all layers. Raises: ValueError for another ``kv_dtype``."""

class ModelShape:
    """Sizes and switches, see ``runtime.models.config.ModelConfig``; all are to be set."""

    vocab_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    hidden_size: int
    ffn_size: int
    max_context_tokens: int
    rotary_dim: int
    eps: float
    query_scale: float
    attention_softcap: float
    final_softcap: float
    embedding_scale: float
    rope_is_interleaved: bool
    activation_is_gelu: bool
    qkv_bias: bool
    qk_norm: bool
    post_norms: bool
    windows: list[int]
    layer_rope: list[int]

    def add_rope(self, inverse_frequencies: Sequence[float], attention_factor: float) -> None: ...

class ModelWeights:
    """Packed weights of one model, shared by its ``Model`` objects; layers are added in order."""

    def __init__(
        self,
        shape: ModelShape,
        embedding: Matrix,
        head: Matrix,
        output_norm: Any,
        *,
        float_only: bool,
    ) -> None:
        """``float_only``: activations are never rounded to 8 bits.

        Raises: ValueError for sizes that contradict each other or that no kernel has.
        """

    def add_layer(
        self, matrices: Mapping[str, Sequence[Matrix]], vectors: Mapping[str, Any]
    ) -> None:
        """``matrices``: qkv, attention_output, gate_up and down, each of parts one after the other.

        ``vectors`` (float32): attention_norm, ffn_norm, and those that the shape's switches name.

        Raises: ValueError when one is missing, too many, or of another size.
        """

    @property
    def num_bytes(self) -> int:
        """Of all packed matrices; a tied head counts twice."""

class Model:
    """Weights with a KV pool and scratch of its own; one step at a time."""

    def __init__(
        self,
        cpu: Cpu,
        weights: ModelWeights,
        *,
        num_blocks: int,
        block_size: int,
        kv_dtype: str,
        max_batch_tokens: int,
    ) -> None:
        """Scratch is for ``max_batch_tokens`` and grows when a step has more.

        Raises: ValueError for sizes out of range; MemoryError.
        """

    def step(
        self,
        token_ids: Int32Array,
        positions: Int32Array,
        query_starts: Int32Array,
        context_lens: Int32Array,
        prompt_lens: Int32Array,
        batch_invariant: BoolArray,
        block_tables: Int32Array,
        slots: Int64Array,
        logits_rows: Int32Array,
    ) -> None:
        """Compute one ``StepPlan``; the GIL is released.

        Raises: ValueError when arrays contradict each other; IndexError for a token, position,
        slot or block that does not exist. Nothing is computed then.
        """

    def best(self) -> tuple[list[int], list[int]]:
        """Of the last step: the id of each row's largest logit (ties: the lowest), and the rows
        that hold NaN or infinity."""

    def logits(self) -> Float32Array:
        """Of the last step: (S, V), a view that the next step overwrites."""

    @property
    def has_bulk(self) -> bool:
        """Whether many rows are computed otherwise than few."""

    @property
    def block_bytes(self) -> int: ...

def largest(
    cpu: Cpu,
    logits: Any,
    count: int,
    inverse_temperature: float = 1.0,
    allowed: Any | None = None,
) -> tuple[Int32Array, Float32Array, float, bool]:
    """Ids and logits of the ``count`` largest of ``logits`` (V,), largest first, ties by id.

    Then log(sum(exp(logit * inverse_temperature))) over all, and whether NaN or infinity is among
    them (nothing is chosen then). ``allowed``: uint32 words, bit i % 32 of word i // 32 says
    whether token i counts.

    Raises: ValueError for a mask that is too short.
    """

def probe_read(cpu: Cpu, num_bytes: int, num_passes: int) -> list[float]:
    """Seconds of each pass of all threads over as many bytes, each reading its share.

    Raises: ValueError for numbers out of range.
    """

def probe_multiply(
    cpu: Cpu, kind: str, num_rounds: int, num_passes: int
) -> tuple[int, list[float]]:
    """Operations of a pass in registers by all threads, and its seconds; ``kind`` int8 or f32.

    Raises: ValueError for another kind or numbers out of range.
    """

def draw(cpu: Cpu, logits: Any, best: float, inverse_temperature: float, uniform: float) -> int:
    """The id at which the sum of exp((x - best) * inverse_temperature) over ``logits`` (V,), taken
    in the order of ids, first exceeds ``uniform`` (in [0, 1)) of the whole.

    Raises: ValueError unless ``best``, the largest logit, is finite.
    """

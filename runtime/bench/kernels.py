"""`starshade bench kernels`: what share of the machine's own limit do the compiled kernels reach?

Products: all matrices of the model in turn, as in a step, with quantization of the activations and
the barriers between. Attention: all layers in turn over a KV cache that holds as many tokens.
"""

import os
import time
from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING

import click
import numpy as np

from runtime.bench.engines import NATIVE, EngineChoice
from runtime.bench.machine import load_average
from runtime.bench.options import engine_options
from runtime.bench.report import NotMeasurable, Report, Row
from runtime.checkpoint import open_checkpoint
from runtime.models.config import ModelConfig
from runtime.weights.source import TensorSource

if TYPE_CHECKING:
    from runtime._native import Cpu, Matrix

_BLOCK_SIZE = 16
_MIN_READ_BYTES = 64 << 20
_SEED = 6
_WARM_UP = 2


@click.command()
@engine_options
@click.option(
    "--rows",
    type=click.IntRange(1, 4096),
    multiple=True,
    default=(1, 4, 8, 32, 128, 512),
    show_default=True,
    help="Rows of activations; may be given several times.",
)
@click.option(
    "--context",
    "contexts",
    type=click.IntRange(1, 1 << 16),
    multiple=True,
    default=(128, 1024),
    show_default=True,
    help="Tokens that one row of attention looks at; may be given several times.",
)
@click.option("--repeat", type=click.IntRange(1, 10_000), default=20, show_default=True)
def kernels(
    choice: EngineChoice,
    rows: tuple[int, ...],
    contexts: tuple[int, ...],
    repeat: int,
    as_json: bool,
) -> None:
    """Time products and attention beside what memory and arithmetic allow."""
    if choice.backend != NATIVE:
        raise NotMeasurable("only compiled kernels are measured here")
    from runtime import _native
    from runtime.bench.limits import kernel_row, measure_limits

    started_load = load_average()
    cpu = _native.Cpu(choice.threads or len(os.sched_getaffinity(0)))
    with open_checkpoint(choice.model) as checkpoint:
        config = checkpoint.config_for()
        source = checkpoint.source(config, lambda _ratio: None)
        layers, head = _pack(cpu, config, source)
        del source
        name = checkpoint.name
    if choice.precision == "int8":
        for matrix in layers:
            matrix.rotate(cpu)
        for matrix in (*layers, head):
            matrix.widen(cpu)
    layers_bytes = sum(matrix.num_bytes for matrix in layers)
    limits = measure_limits(cpu, num_bytes=max(_MIN_READ_BYTES, layers_bytes))
    results: list[Row] = []
    for part, matrices in (("layers", layers), ("head", [head])):
        num_weights = sum(matrix.num_rows * matrix.num_cols for matrix in matrices)
        takes_int8 = all(matrix.takes_int8 for matrix in matrices)
        modes = [choice.precision if takes_int8 else "f32"]
        if modes == ["int8"] and cpu.takes_bf16:  # many rows are multiplied so
            modes += ["bf16"]
        if modes[0] == "int8" and all(matrix.takes_rotated for matrix in matrices):
            modes += ["rotated"]
        for num_rows, mode in product(rows, modes):
            num_bytes = sum(_bytes_read(matrix, mode) for matrix in matrices)
            seconds = _native.time_matmul(cpu, matrices, num_rows, mode, repeat + _WARM_UP)
            results.append(
                kernel_row(
                    f"{part}, {num_rows} rows, {mode}",
                    seconds[_WARM_UP:],
                    limits,
                    num_bytes=num_bytes,
                    num_operations=2.0 * num_rows * num_weights,
                    mode=mode,
                )
            )
    for context in contexts:
        seconds, kv_bytes = _time_attention(cpu, config, choice.kv_dtype, context, repeat)
        width = config.num_layers * config.num_heads * config.head_dim
        results.append(
            kernel_row(
                f"attention, 1 row at {context}, {choice.kv_dtype}",
                seconds,
                limits,
                num_bytes=kv_bytes,
                num_operations=4.0 * width * context,
                mode="f32",
            )
        )
    Report(
        command="kernels",
        model={"name": name},
        settings={**choice.settings(), "isa": cpu.isa},
        results=[*limits.rows(), *results],
        started_load=started_load,
    ).show(as_json=as_json)


def _bytes_read(matrix: "Matrix", mode: str) -> int:
    """Of the form that a product in this mode reads."""
    added = {"rotated": matrix.rotated_bytes, "bf16": matrix.widened_bytes}
    return added.get(mode) or matrix.num_bytes


def _pack(cpu: "Cpu", config: ModelConfig, source: TensorSource) -> "tuple[list[Matrix], Matrix]":
    """The layers' matrices in the order of a step, stacked where that is possible; the head."""
    q_width, kv_width = (n * config.head_dim for n in (config.num_heads, config.num_kv_heads))
    hidden, ffn = config.hidden_size, config.ffn_size
    groups = (
        ((("attn_q", q_width), ("attn_k", kv_width), ("attn_v", kv_width)), hidden),
        ((("attn_output", hidden),), q_width),
        ((("ffn_gate", ffn), ("ffn_up", ffn)), hidden),
        ((("ffn_down", hidden),), ffn),
    )
    layers = []
    for index in range(config.num_layers):
        for parts, width in groups:
            names = [(f"blk.{index}.{part}.weight", rows) for part, rows in parts]
            layers += _stack(cpu, source, names, width)
    name = "output.weight" if source.has("output.weight") else "token_embd.weight"
    (head,) = _stack(cpu, source, [(name, config.vocab_size)], hidden)
    return layers, head


def _stack(
    cpu: "Cpu", source: TensorSource, names: Sequence[tuple[str, int]], width: int
) -> "list[Matrix]":
    from runtime import _native

    raws = [(source.raw(name, (rows, width)), rows) for name, rows in names]
    parts = [(raw.type.ggml_id, raw.data, rows) for raw, rows in raws]
    if all(_native.Matrix.pack_alike(parts[0][0], part[0]) for part in parts):
        return [_native.Matrix.stack(cpu, parts, width)]
    return [_native.Matrix.stack(cpu, [part], width) for part in parts]


def _time_attention(
    cpu: "Cpu", config: ModelConfig, kv_dtype: str, context: int, repeat: int
) -> tuple[list[float], int]:
    """Seconds of all layers, ``repeat`` times, and the bytes of keys and values they read."""
    from runtime import _native

    num_blocks = -(-context // _BLOCK_SIZE)
    pool = _native.KvPool(
        num_layers=config.num_layers,
        num_blocks=num_blocks,
        block_size=_BLOCK_SIZE,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        kv_dtype=kv_dtype,
    )
    rng = np.random.default_rng(_SEED)
    shape = (context, config.num_kv_heads, config.head_dim)
    keys, values = (rng.normal(size=shape).astype(np.float32) for _ in range(2))
    slots = np.arange(context, dtype=np.int64)
    for layer in range(config.num_layers):
        pool.write(cpu, layer, slots, keys, values)
    q = rng.normal(size=(1, config.num_heads, config.head_dim)).astype(np.float32)
    out = np.empty_like(q)
    starts, lens = np.array([0, 1], np.int32), np.array([context], np.int32)
    table = np.arange(num_blocks, dtype=np.int32)[None, :]
    seconds = []
    for _ in range(_WARM_UP + repeat):
        started_s = time.perf_counter()
        for layer in range(config.num_layers):
            pool.attend(cpu, layer, q, starts, lens, table, out, config.query_scale)
        seconds.append(time.perf_counter() - started_s)
    return seconds[_WARM_UP:], pool.block_bytes * context // _BLOCK_SIZE

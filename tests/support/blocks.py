"""Random tensors in every ggml type, and their float values by the gguf package."""

import gguf
import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

PLAIN = {"F32": 0, "F16": 1, "BF16": 30}
# name -> (ggml type, where halves lie in a block)
PACKED = {
    "Q4_0": (2, [0]),
    "Q4_1": (3, [0, 2]),
    "Q5_0": (6, [0]),
    "Q5_1": (7, [0, 2]),
    "Q8_0": (8, [0]),
    "Q2_K": (10, [80, 82]),
    "Q3_K": (11, [108]),
    "Q4_K": (12, [0, 2]),
    "Q5_K": (13, [0, 2]),
    "Q6_K": (14, [208]),
}
TYPES = {**PLAIN, **{name: kind for name, (kind, _) in PACKED.items()}}


def block_items(name: str) -> int:
    return gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(TYPES[name])][0]


def random_tensor(
    name: str, num_rows: int, num_cols: int, rng: np.random.Generator
) -> tuple[Bytes, Floats]:
    """(raw bytes, values (num_rows, num_cols)): any code may occur, scales are normal."""
    kind = gguf.GGMLQuantizationType(TYPES[name])
    if name in PLAIN:
        items = rng.normal(0, 1, (num_rows, num_cols)).astype(np.float32)
        raw = gguf.quants.quantize(items, kind)
    else:
        items_per_block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        shape = (num_rows * num_cols // items_per_block, block_bytes)
        raw = rng.integers(0, 256, shape, np.uint8)
        for at in PACKED[name][1]:
            halves = rng.normal(0, 0.01, (len(raw), 1)).astype("<f2")
            raw[:, at : at + 2] = halves.view(np.uint8)
    flat = np.ascontiguousarray(raw).view(np.uint8).reshape(-1)
    if not flat.size:
        return flat, np.zeros((num_rows, num_cols), np.float32)
    values = gguf.quants.dequantize(flat.reshape(num_rows, -1).view(raw.dtype), kind)
    return flat, values.astype(np.float32).reshape(num_rows, num_cols)

"""Which model is small enough for every test?  A seeded two-layer llama GGUF, written here.

It has what the real file has: grouped-query attention, tied Q8_0 embeddings, Q4_1, F16 and F32
tensors, byte-level BPE merges and a ChatML template. Its text is noise; its shapes are not.
"""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
EOS_TOKEN_ID = 2
CONTEXT_TOKENS = 512
NUM_LAYERS, HIDDEN, NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, FFN = 2, 64, 4, 2, 16, 96
ROPE_THETA, EPS = 10000.0, 1e-5
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
_MERGES = (
    ("Ġ", "t"),
    ("Ġ", "a"),
    ("i", "n"),
    ("h", "e"),
    ("r", "e"),
    ("Ġt", "he"),
    ("e", "r"),
    ("o", "n"),
    ("u", "s"),
    ("us", "er"),
    ("l", "l"),
    ("in", "g"),
    ("Ġ", "Ġ"),
    ("Ċ", "Ċ"),
    ("2", "0"),  # never reached: digits stand alone before merging
)
_U32, _F32, _BOOL, _STRING, _ARRAY = 4, 6, 7, 8, 9
F32, F16, Q4_1, Q8_0 = 0, 1, 3, 8
_ALIGNMENT = 32

Tensor = tuple[npt.NDArray[np.float32], int]


def byte_characters() -> list[str]:
    """GPT-2's printable character for each byte value [openai/gpt-2 encoder.py]."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def tiny_vocabulary() -> list[str]:
    """Control tokens, 256 bytes, then the merges' results."""
    return [*CONTROL_TOKENS, *byte_characters(), *("".join(pair) for pair in _MERGES)]


def tiny_metadata() -> dict[str, Any]:
    """GGUF metadata; a test may change entries before ``write_gguf``."""
    tokens = tiny_vocabulary()
    return {
        "general.architecture": "llama",
        "general.name": "tiny",
        "llama.block_count": NUM_LAYERS,
        "llama.context_length": CONTEXT_TOKENS,
        "llama.embedding_length": HIDDEN,
        "llama.feed_forward_length": FFN,
        "llama.attention.head_count": NUM_HEADS,
        "llama.attention.head_count_kv": NUM_KV_HEADS,
        "llama.rope.freq_base": ROPE_THETA,
        "llama.rope.dimension_count": HEAD_DIM,
        "llama.attention.layer_norm_rms_epsilon": EPS,
        "llama.vocab_size": len(tokens),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] * len(CONTROL_TOKENS)
        + [1] * (len(tokens) - len(CONTROL_TOKENS)),
        "tokenizer.ggml.merges": [" ".join(pair) for pair in _MERGES],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": EOS_TOKEN_ID,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHAT_TEMPLATE,
    }


def tiny_tensors(seed: int = 0) -> dict[str, Tensor]:
    """Seeded weights by GGUF name, each with the type it is stored in."""
    rng = np.random.default_rng(seed)

    def weight(rows: int, columns: int) -> npt.NDArray[np.float32]:
        return rng.normal(0, columns**-0.5, (rows, columns)).astype(np.float32)

    def norm() -> npt.NDArray[np.float32]:
        return rng.normal(1, 0.1, HIDDEN).astype(np.float32)

    q_width, kv_width = NUM_HEADS * HEAD_DIM, NUM_KV_HEADS * HEAD_DIM
    tensors: dict[str, Tensor] = {
        "token_embd.weight": (weight(len(tiny_vocabulary()), HIDDEN) * 4, Q8_0),
        "output_norm.weight": (norm(), F32),
    }
    for layer in range(NUM_LAYERS):
        name = f"blk.{layer}."
        tensors |= {
            name + "attn_norm.weight": (norm(), F32),
            name + "attn_q.weight": (weight(q_width, HIDDEN), F16),
            name + "attn_k.weight": (weight(kv_width, HIDDEN), F32),
            name + "attn_v.weight": (weight(kv_width, HIDDEN), Q8_0),
            name + "attn_output.weight": (weight(HIDDEN, q_width), Q4_1),
            name + "ffn_norm.weight": (norm(), F32),
            name + "ffn_gate.weight": (weight(FFN, HIDDEN), Q4_1),
            name + "ffn_up.weight": (weight(FFN, HIDDEN), Q4_1),
            name + "ffn_down.weight": (weight(HIDDEN, FFN), Q8_0),
        }
    return tensors


def write_tiny_gguf(path: Path, *, seed: int = 0) -> Path:
    """Write the model (about 70 kB) and return ``path``; the same seed gives the same bytes."""
    path.write_bytes(gguf_bytes(tiny_metadata(), tiny_tensors(seed)))
    return path


def gguf_bytes(metadata: dict[str, Any], tensors: dict[str, Tensor]) -> bytes:
    """A GGUF v3 file; tensors are (array, type), stored row-major."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(_string(key) + _value(value) for key, value in metadata.items())
    data = b""
    for name, (array, kind) in tensors.items():
        dimensions = array.shape[::-1]
        head += _string(name) + struct.pack("<I", len(dimensions))
        head += struct.pack(f"<{len(dimensions)}Q", *dimensions)
        head += struct.pack("<IQ", kind, len(data))
        data += _padded(quantize(array, kind))
    return _padded(head) + data


def quantize(array: npt.NDArray[np.float32], kind: int) -> bytes:
    """Pack ``array`` the way ggml's reference quantizers do."""
    if kind == F32:
        return array.astype("<f4").tobytes()
    if kind == F16:
        return array.astype("<f2").tobytes()
    blocks = array.reshape(-1, 32)
    return _pack_q8_0(blocks) if kind == Q8_0 else _pack_q4_1(blocks)


def _pack_q8_0(blocks: npt.NDArray[np.float32]) -> bytes:
    scale = np.abs(blocks).max(axis=1, keepdims=True) / 127
    items = np.rint(blocks / np.where(scale == 0, 1, scale)).astype(np.int8)
    return np.hstack([scale.astype("<f2").view(np.uint8), items.view(np.uint8)]).tobytes()


def _pack_q4_1(blocks: npt.NDArray[np.float32]) -> bytes:
    low = blocks.min(axis=1, keepdims=True)
    scale = (blocks.max(axis=1, keepdims=True) - low) / 15
    items = np.rint((blocks - low) / np.where(scale == 0, 1, scale)).clip(0, 15).astype(np.uint8)
    packed = items[:, :16] | (items[:, 16:] << 4)
    halves = np.hstack([scale, low]).astype("<f2").view(np.uint8)
    return np.hstack([halves, packed]).tobytes()


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def _value(value: Any) -> bytes:
    if isinstance(value, list):
        kind, _ = _scalar(value[0])
        items = b"".join(_scalar(item)[1] for item in value)
        return struct.pack("<IIQ", _ARRAY, kind, len(value)) + items
    kind, payload = _scalar(value)
    return struct.pack("<I", kind) + payload


def _scalar(value: bool | int | float | str) -> tuple[int, bytes]:
    if isinstance(value, bool):
        return _BOOL, struct.pack("<?", value)
    if isinstance(value, int):
        return _U32, struct.pack("<I", value)
    if isinstance(value, float):
        return _F32, struct.pack("<f", value)
    return _STRING, _string(value)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % _ALIGNMENT)

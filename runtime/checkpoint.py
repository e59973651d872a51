"""What is at this path: a GGUF file or a safetensors folder?  Opened alike, without torch.

::

    with open_checkpoint(path) as checkpoint:
        tokenizer = checkpoint.tokenizer()
        config = checkpoint.config_for(tokenizer.vocab_size)
        digest = checkpoint.sha256(on_progress)
        source = checkpoint.source(config, on_progress)

Digest and weights come from the same mapping of the files, which must not be written meanwhile.
"""

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from runtime.models import gguf_config, hf_config
from runtime.models.config import MAX_HEAD_DIM, ModelConfig
from runtime.tokenizer import Tokenizer, parse_folder_tokenizer
from runtime.weights.errors import TensorMismatchError
from runtime.weights.folder import ModelFolder
from runtime.weights.gguf import GgufFile
from runtime.weights.mapped import MappedFiles
from runtime.weights.names import gguf_names, of_language_model, without_fused
from runtime.weights.quantize import quantized
from runtime.weights.source import Floats, TensorSource
from runtime.weights.stored import StoredTensor

Progress = Callable[[float], None]  # what share is done, 0 to 1

_HASH_CHUNK_BYTES = 1 << 22
_VOCABULARY_TENSORS = ("token_embd.weight", "output.weight", "output.bias")


class _Files(Protocol):
    def close(self) -> None: ...


class Checkpoint(MappedFiles):
    """An open model; tensors stay valid while it is open."""

    def __init__(
        self,
        *,
        name: str,
        config: ModelConfig,
        tensors: Mapping[str, StoredTensor],
        files: _Files,
        contents: Mapping[str, memoryview],
        load_tokenizer: Callable[[], Tokenizer],
        pads_vocabulary: bool,
    ) -> None:
        self.name = name
        self._config = config
        self._tensors = tensors
        self._files = files
        self._contents = contents
        self._load_tokenizer = load_tokenizer
        self._pads_vocabulary = pads_vocabulary

    def tokenizer(self) -> Tokenizer:
        """Raises: ModelFileError."""
        return self._load_tokenizer()

    def config_for(self, vocab_size: int | None = None) -> ModelConfig:
        """The config with the tokenizer's vocabulary: rows beyond it are padding.

        Raises: TensorMismatchError.
        """
        rows = self._config.vocab_size
        if vocab_size is None or vocab_size == rows:
            return self._config
        if vocab_size > rows or not self._pads_vocabulary:
            raise TensorMismatchError(f"{vocab_size} tokens and {rows} embeddings")
        return replace(self._config, vocab_size=vocab_size)

    def source(
        self, config: ModelConfig, on_progress: Progress, *, quantize: str = "none"
    ) -> TensorSource:
        """The tensors, of which each is to be taken; ``on_progress`` hears a ratio.

        ``quantize`` none, int8 or int4 packs the float matrices [runtime/weights/quantize.py].

        Raises: InvalidConfig for another ``quantize``.
        """
        tensors, rows = dict(self._tensors), self._config.vocab_size
        for name in _VOCABULARY_TENSORS:
            tensor = tensors.get(name)
            if tensor is not None and tensor.shape[0] == rows != config.vocab_size:
                tensors[name] = tensor.rows(0, config.vocab_size)
        packed = {name: quantized(name, tensor, quantize) for name, tensor in tensors.items()}
        return TensorSource(packed, on_progress=on_progress)

    def sha256(self, on_progress: Progress) -> str:
        """Of a file its digest; of a folder that of its ``sha256sum`` lines, sorted by name."""
        total = sum(len(content) for content in self._contents.values())
        done, lines = 0, []
        for name, content in sorted(self._contents.items()):
            digest = hashlib.sha256()
            for start in range(0, len(content), _HASH_CHUNK_BYTES):
                chunk = content[start : start + _HASH_CHUNK_BYTES]
                digest.update(chunk)
                done += len(chunk)
                on_progress(done / total)
            lines.append((digest.hexdigest(), name))
        if isinstance(self._files, GgufFile):
            return lines[0][0]
        text = "".join(f"{digest}  {name}\n" for digest, name in lines)
        return hashlib.sha256(text.encode()).hexdigest()

    def close(self) -> None:
        """Unmap the files. Raises: BufferError while views of them are alive."""
        for content in self._contents.values():
            content.release()
        self._files.close()


def open_checkpoint(path: Path) -> Checkpoint:
    """Open the GGUF file, or the folder with config.json and safetensors, at ``path``.

    Raises: runtime.errors.ModelFileError, OSError.
    """
    return _open_folder(path) if path.is_dir() else _open_gguf(path)


def _open_gguf(path: Path) -> Checkpoint:
    file = GgufFile(path)
    try:
        stored = file.stored()
        factors = _take_factors(stored)
        config = gguf_config.parse_config(
            file.metadata, vocab_size=_num_embeddings(file.metadata, stored), factors=factors
        )
        name = file.metadata.get("general.name")
        return Checkpoint(
            name=name if isinstance(name, str) and name else path.stem,
            config=config,
            tensors=_unfused(config, stored),
            files=file,
            contents={path.name: file.buffer},
            load_tokenizer=lambda: Tokenizer(file.metadata),
            pads_vocabulary=False,
        )
    except BaseException:
        with suppress(BufferError):
            file.close()
        raise


def _take_factors(stored: dict[str, StoredTensor]) -> dict[str, Floats]:
    """Rotary factors become part of the config and are no weights any more."""
    factors: dict[str, Floats] = {}
    for name in gguf_config.FACTOR_TENSORS:
        tensor = stored.pop(name, None)
        if tensor is None:
            continue
        if len(tensor.shape) != 1 or tensor.shape[0] > MAX_HEAD_DIM:
            raise TensorMismatchError(f"{name}: {tensor.shape} is not a factor for each pair")
        factors[name] = tensor.type.dequantize(tensor.read())
    return factors


def _num_embeddings(metadata: Mapping[str, object], stored: Mapping[str, StoredTensor]) -> int:
    tokens = metadata.get("tokenizer.ggml.tokens")
    embedding = stored.get("token_embd.weight")
    if embedding is None:
        raise TensorMismatchError("token_embd.weight is missing")
    if isinstance(tokens, list) and len(tokens) != embedding.shape[0]:
        raise TensorMismatchError(f"{len(tokens)} tokens and {embedding.shape[0]} embeddings")
    return embedding.shape[0]


def _open_folder(path: Path) -> Checkpoint:
    folder = ModelFolder(path)
    try:
        config = hf_config.parse_config(folder.config)
        tensors = folder.tensors
        if hf_config.has_vision(folder.config):
            tensors = of_language_model(tensors)
        named = gguf_names(
            tensors,
            tied=hf_config.ties_embeddings(folder.config),
            post_norms=config.post_norms,
        )
        return Checkpoint(
            name=path.name,
            config=config,
            tensors=_unfused(config, named),
            files=folder,
            contents=folder.contents,
            load_tokenizer=lambda: _folder_tokenizer(folder.contents),
            pads_vocabulary=True,
        )
    except BaseException:
        with suppress(BufferError):
            folder.close()
        raise


def _folder_tokenizer(contents: Mapping[str, memoryview]) -> Tokenizer:
    return Tokenizer(parse_folder_tokenizer(contents))


def _unfused(
    config: ModelConfig, tensors: Mapping[str, StoredTensor]
) -> Mapping[str, StoredTensor]:
    kv_rows = config.num_kv_heads * config.head_dim
    return without_fused(
        tensors,
        num_layers=config.num_layers,
        qkv_rows=(config.num_heads * config.head_dim, kv_rows, kv_rows),
        ffn_size=config.ffn_size,
    )

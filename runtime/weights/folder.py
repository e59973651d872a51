"""Which files make up a Hugging Face model folder?  A closed list; nothing else is opened.

config.json, model.safetensors or an index with its shards, and the tokenizer's files. What is read
here is what the digest covers; other files in the folder do not count.
"""

import os
import re
from contextlib import suppress
from pathlib import Path

from runtime.weights.errors import MalformedModelError, ModelLimitError, NotSafetensorsError
from runtime.weights.json_text import parse_object
from runtime.weights.safetensors import SafetensorsFile
from runtime.weights.stored import StoredTensor

CONFIG = "config.json"
WHOLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
MAX_CONFIG_BYTES = 1 << 20  # LongRoPE's two lists of factors are the longest in real files
MAX_INDEX_BYTES = 1 << 23
MAX_SHARDS = 1024
# The tokenizer's files and their largest size: vocabularies of 262,144 tokens need 35 MB.
TOKENIZER_FILES = {
    "tokenizer.json": 1 << 26,
    "tokenizer.model": 1 << 24,
    "tokenizer_config.json": 1 << 24,
    "special_tokens_map.json": 1 << 20,
    "added_tokens.json": 1 << 20,
    "generation_config.json": 1 << 20,
    "chat_template.jinja": 1 << 20,
    "chat_template.json": 1 << 20,
    "vocab.json": 1 << 24,
    "merges.txt": 1 << 24,
}
_SHARD_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}\.safetensors", re.ASCII)


class ModelFolder:
    """An open folder: its parsed config, tensors by their own names, and what was read."""

    def __init__(self, path: Path) -> None:
        """Raises: runtime.errors.ModelFileError; OSError when a file cannot be read."""
        self.contents: dict[str, memoryview] = {}
        self._shards: list[SafetensorsFile] = []
        self._path = path
        try:
            self.config = parse_object(self._read(CONFIG, MAX_CONFIG_BYTES), what=CONFIG)
            for name, limit in TOKENIZER_FILES.items():
                if (path / name).is_file():
                    self._read(name, limit)
            self.tensors = self._open_shards()
        except BaseException:
            with suppress(BufferError):
                self.close()
            raise

    def close(self) -> None:
        """Unmap the files. Raises: BufferError while views of them are alive."""
        for shard in self._shards:
            shard.close()

    def _read(self, name: str, limit: int) -> bytes:
        """A small file, whole."""
        if not (self._path / name).is_file():
            raise NotSafetensorsError(f"the folder has no {name}")
        with (self._path / name).open("rb") as file:
            if os.fstat(file.fileno()).st_size > limit:
                raise ModelLimitError(f"{name} has more than {limit} bytes")
            data = file.read()
        self.contents[name] = memoryview(data)
        return data

    def _open_shards(self) -> dict[str, StoredTensor]:
        if not (self._path / INDEX).is_file():
            return self._open(WHOLE)
        places = _weight_map(parse_object(self._read(INDEX, MAX_INDEX_BYTES), what=INDEX))
        shards = sorted(set(places.values()))
        if len(shards) > MAX_SHARDS:
            raise ModelLimitError(f"the index names more than {MAX_SHARDS} shards")
        tensors: dict[str, StoredTensor] = {}
        for shard in shards:
            for name, tensor in self._open(shard).items():
                if places.get(name) != shard:
                    raise MalformedModelError(f"the index does not place {name!r} in its shard")
                tensors[name] = tensor
        if tensors.keys() != places.keys():
            raise MalformedModelError("the index names tensors that no shard has")
        return tensors

    def _open(self, name: str) -> dict[str, StoredTensor]:
        if not (self._path / name).is_file():
            raise NotSafetensorsError(f"the folder has no {name}")
        shard = SafetensorsFile(self._path / name)
        self._shards.append(shard)
        self.contents[name] = shard.buffer
        return shard.tensors


def _weight_map(index: dict[str, object]) -> dict[str, str]:
    """Tensor name -> shard; a shard is a plain file name of this folder."""
    places = index.get("weight_map")
    if not isinstance(places, dict):
        raise MalformedModelError("the index has no weight_map")
    for shard in places.values():
        if not isinstance(shard, str) or not _SHARD_NAME.fullmatch(shard):
            raise MalformedModelError("the index names what is no file of the folder")
    return places

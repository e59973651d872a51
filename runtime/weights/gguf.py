"""What does a GGUF file hold?  Metadata parsed once, tensors as views of the mapped file.

Versions 2 and 3, little-endian [ggml docs/gguf.md]. The file is hostile until proven otherwise:
every count and length is bounded before anything is allocated for it, and every tensor's extent
lies inside the file before its info is handed out.
"""

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from runtime.weights.errors import (
    MalformedModelError,
    ModelLimitError,
    NotGgufError,
    TruncatedModelError,
    UnsupportedModelError,
)
from runtime.weights.mapped import MappedFiles
from runtime.weights.quant import TENSOR_TYPES, TensorType
from runtime.weights.stored import StoredTensor

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32  # gguf.md, general.alignment
MAX_ALIGNMENT = 1 << 16
MAX_METADATA_ENTRIES = 4096  # real files have 20-60
MAX_TENSORS = 65536  # the largest published mixtures have a few thousand
MAX_DIMENSIONS = 4  # GGML_MAX_DIMS
MAX_KEY_BYTES = 65535  # gguf.md
MAX_NAME_BYTES = 64  # GGML_MAX_NAME
MAX_STRING_BYTES = 1 << 20  # chat templates are the longest strings in real files
MAX_ARRAY_ITEMS = 1 << 20  # vocabularies reach 262,144; merges about as many

_STRING, _ARRAY = 8, 9
_SCALARS: Mapping[int, np.dtype[Any]] = {
    0: np.dtype("<u1"),
    1: np.dtype("<i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    4: np.dtype("<u4"),
    5: np.dtype("<i4"),
    6: np.dtype("<f4"),
    7: np.dtype("?"),
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}

MetadataValue: TypeAlias = int | float | bool | str | list[str] | list[int] | list[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorInfo:
    """One tensor: ``shape`` is row-major (GGUF's dimensions reversed), rows are contiguous."""

    name: str
    shape: tuple[int, ...]
    type: TensorType
    start: int  # bytes from the beginning of the file
    num_bytes: int


class GgufFile(MappedFiles):
    """An open GGUF file; tensors stay valid while it is open."""

    def __init__(self, path: Path) -> None:
        """Map and parse ``path``.

        Raises: NotGgufError, TruncatedModelError, ModelLimitError, MalformedModelError,
        UnsupportedModelError; OSError when the file cannot be read.
        """
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                raise NotGgufError("the file is empty")
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.buffer = memoryview(self._map)
        try:
            self.metadata, self.tensors = _parse(self.buffer)
        except BaseException:
            self.close()
            raise

    def raw(self, info: TensorInfo) -> npt.NDArray[np.uint8]:
        """The tensor's bytes as they lie in the file: a read-only view, (num_bytes,) uint8."""
        return np.frombuffer(self.buffer, np.uint8, info.num_bytes, info.start)

    def stored(self) -> dict[str, StoredTensor]:
        """Every tensor by its name in the file; reading gives views of the map."""
        return {
            info.name: StoredTensor(
                type=info.type,
                shape=info.shape,
                num_bytes=info.num_bytes,
                read=partial(self.raw, info),
            )
            for info in self.tensors.values()
        }

    def tensor(self, info: TensorInfo) -> npt.NDArray[np.float32]:
        """The tensor dequantized to float32 in a new array of ``info.shape``."""
        return info.type.dequantize(self.raw(info)).reshape(info.shape)

    def close(self) -> None:
        """Unmap the file. Raises: BufferError while views of it are alive."""
        self.buffer.release()
        self._map.close()


class _Reader:
    """A cursor that never reads past the end."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.offset = 0

    def take(self, num_bytes: int) -> bytes:
        """A copy: a view that an exception holds on to would keep the file mapped."""
        if num_bytes > len(self.data) - self.offset:
            raise TruncatedModelError(f"{num_bytes} bytes wanted at offset {self.offset}")
        piece = bytes(self.data[self.offset : self.offset + num_bytes])
        self.offset += num_bytes
        return piece

    def u32(self) -> int:
        return int(struct.unpack("<I", self.take(4))[0])

    def u64(self) -> int:
        return int(struct.unpack("<Q", self.take(8))[0])

    def count(self, what: str, limit: int) -> int:
        count = self.u64()
        if count > limit:
            raise ModelLimitError(f"{what}: {count} is more than {limit}")
        return count

    def string(self, what: str, limit: int) -> str:
        piece = self.take(self.count(what, limit))
        try:
            return str(piece, "utf-8")
        except UnicodeDecodeError as err:
            raise MalformedModelError(f"{what} is not UTF-8") from err

    def value(self, key: str) -> MetadataValue:
        kind = self.u32()
        if kind == _ARRAY:
            return self._array(key)
        return self._scalar(key, kind)

    def _scalar(self, key: str, kind: int) -> int | float | bool | str:
        if kind == _STRING:
            return self.string(f"value of {key}", MAX_STRING_BYTES)
        number: int | float | bool = self._numbers(key, kind, 1)[0]
        return number

    def _array(self, key: str) -> MetadataValue:
        kind = self.u32()
        length = self.count(f"items of {key}", MAX_ARRAY_ITEMS)
        if kind == _STRING:
            return self._strings(key, length)
        return self._numbers(key, kind, length)

    def _strings(self, key: str, length: int) -> list[str]:
        """``length`` strings; a vocabulary has 100,000s, so the loop does as little as it can.

        Lengths are first taken to fit their lowest byte, then all of them are checked at once.
        """
        data, start, size = self.data, self.offset, len(self.data)
        offsets = []
        offset = start
        try:
            for _ in range(length):
                offsets.append(offset)
                offset += 8 + data[offset]
        except IndexError:
            offset = size + 1  # a false count ends here: a string takes 8 bytes at least
        if offset <= size and self._are_short(offsets, offset):
            piece = self.take(offset - start)
            starts = [first - start + 8 for first in offsets]
            ends = [*(first - 8 for first in starts[1:]), len(piece)]
            try:
                return [str(piece[a:b], "utf-8") for a, b in zip(starts, ends, strict=bool(starts))]
            except UnicodeDecodeError as err:
                raise MalformedModelError(f"item of {key} is not UTF-8") from err
        return [self.string(f"item of {key}", MAX_STRING_BYTES) for _ in range(length)]

    def _are_short(self, offsets: list[int], end: int) -> bool:
        """Whether the 64-bit lengths at ``offsets`` are all below 256; ``end`` is past the last."""
        raw = np.frombuffer(self.data, np.uint8)
        high = np.array(offsets, np.int64)[:, None] + np.arange(1, 8)
        is_short = bool(high.size == 0 or (high.max() < end and not raw[high].any()))
        del raw  # a view that an exception holds on to would keep the file mapped
        return is_short

    def _numbers(self, key: str, kind: int, length: int) -> list[Any]:
        if kind not in _SCALARS:
            raise MalformedModelError(f"{key} has value type {kind}")
        dtype = _SCALARS[kind]
        raw = np.frombuffer(self.take(dtype.itemsize * length), np.uint8)
        if dtype.kind == "b" and raw.size and raw.max() > 1:
            raise MalformedModelError(f"{key} is a boolean other than 0 and 1")
        numbers: list[Any] = raw.view(dtype).tolist()
        return numbers


def _parse(data: memoryview) -> tuple[dict[str, MetadataValue], dict[str, TensorInfo]]:
    reader = _Reader(data)
    if reader.take(4) != MAGIC:
        raise NotGgufError("the magic is not GGUF")
    if (version := reader.u32()) not in VERSIONS:
        raise NotGgufError(f"version {version}, want one of {VERSIONS}")
    num_tensors = reader.count("tensors", MAX_TENSORS)
    num_entries = reader.count("metadata entries", MAX_METADATA_ENTRIES)
    metadata: dict[str, MetadataValue] = {}
    for _ in range(num_entries):
        key = reader.string("metadata key", MAX_KEY_BYTES)
        if key in metadata:
            raise MalformedModelError("a metadata key appears twice")
        metadata[key] = reader.value(key)
    infos = [_tensor_header(reader) for _ in range(num_tensors)]
    alignment = _alignment(metadata)
    base = -(-reader.offset // alignment) * alignment
    return metadata, _place(infos, base=base, alignment=alignment, file_bytes=len(data))


def _alignment(metadata: Mapping[str, MetadataValue]) -> int:
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if type(alignment) is not int or not 8 <= alignment <= MAX_ALIGNMENT:
        raise MalformedModelError("general.alignment is out of range")
    if alignment & (alignment - 1):
        raise MalformedModelError("general.alignment is not a power of two")
    return alignment


def _tensor_header(reader: _Reader) -> TensorInfo:
    """One tensor info; ``start`` is still relative to the data section."""
    name = reader.string("tensor name", MAX_NAME_BYTES)
    num_dimensions = reader.u32()
    if not 1 <= num_dimensions <= MAX_DIMENSIONS:
        raise ModelLimitError(f"{name} has {num_dimensions} dimensions")
    shape = tuple(reader.u64() for _ in range(num_dimensions))[::-1]
    kind, start = reader.u32(), reader.u64()
    if kind not in TENSOR_TYPES:
        raise UnsupportedModelError(f"{name} has tensor type {kind}")
    tensor_type = TENSOR_TYPES[kind]
    if min(shape) < 1 or shape[-1] % tensor_type.block_items:
        raise MalformedModelError(f"{name}: {tensor_type.name} cannot have the shape {shape}")
    num_items = 1
    for length in shape:
        num_items *= length
    num_bytes = num_items // tensor_type.block_items * tensor_type.block_bytes
    return TensorInfo(name=name, shape=shape, type=tensor_type, start=start, num_bytes=num_bytes)


def _place(
    infos: list[TensorInfo], *, base: int, alignment: int, file_bytes: int
) -> dict[str, TensorInfo]:
    placed: dict[str, TensorInfo] = {}
    end_of_last = base
    for info in sorted(infos, key=lambda info: info.start):
        start = base + info.start
        if info.start % alignment:
            raise MalformedModelError(f"{info.name} is not aligned to {alignment}")
        if start < end_of_last:
            raise MalformedModelError(f"{info.name} overlaps another tensor")
        end_of_last = start + info.num_bytes
        if end_of_last > file_bytes:
            raise TruncatedModelError(f"{info.name} ends past the end of the file")
        if info.name in placed:
            raise MalformedModelError(f"tensor {info.name} appears twice")
        placed[info.name] = TensorInfo(
            name=info.name,
            shape=info.shape,
            type=info.type,
            start=start,
            num_bytes=info.num_bytes,
        )
    return placed

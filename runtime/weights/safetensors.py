"""What does a safetensors file hold?  Its header parsed once, tensors as views of the mapped file.

[safetensors README, Format]: a length in 8 bytes, a JSON header of that length, then the tensors
without gaps. The file is hostile until proven otherwise: the header is bounded before it is read,
and every tensor's extent is inside the file, apart from the others' and as long as its shape says.
"""

import mmap
from pathlib import Path

import numpy as np
import numpy.typing as npt

from runtime.weights.errors import (
    MalformedModelError,
    ModelLimitError,
    NotSafetensorsError,
    TruncatedModelError,
    UnsupportedModelError,
)
from runtime.weights.json_text import parse_object
from runtime.weights.quant import TENSOR_TYPES
from runtime.weights.stored import StoredTensor

MAX_HEADER_BYTES = 1 << 21  # a dense model of 512 layers needs less
MAX_TENSORS = 65536
MAX_DIMENSIONS = 4
MAX_NAME_CHARS = 256
_LENGTH_BYTES = 8
_TYPES = {"F32": TENSOR_TYPES[0], "F16": TENSOR_TYPES[1], "BF16": TENSOR_TYPES[30]}


class SafetensorsFile:
    """An open file; tensors stay valid while it is open."""

    def __init__(self, path: Path) -> None:
        """Map and parse ``path``.

        Raises: NotSafetensorsError, TruncatedModelError, ModelLimitError, MalformedModelError,
        UnsupportedModelError; OSError when the file cannot be read.
        """
        with path.open("rb") as file:
            if file.seek(0, 2) < _LENGTH_BYTES:
                raise NotSafetensorsError("the file is shorter than the length of its header")
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.buffer = memoryview(self._map)
        try:
            self.tensors = self._parse()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Unmap the file. Raises: BufferError while views of it are alive."""
        self.buffer.release()
        self._map.close()

    def _parse(self) -> dict[str, StoredTensor]:
        """Tensors by the file's own names."""
        header_bytes = int.from_bytes(self.buffer[:_LENGTH_BYTES], "little")
        if header_bytes > MAX_HEADER_BYTES:
            raise ModelLimitError(f"the header has more than {MAX_HEADER_BYTES} bytes")
        base = _LENGTH_BYTES + header_bytes
        if base > len(self.buffer):
            raise TruncatedModelError("the header ends past the end of the file")
        text = bytes(self.buffer[_LENGTH_BYTES:base])
        if not text.startswith(b"{"):
            raise NotSafetensorsError("the header is no JSON object")
        header = parse_object(text, what="the header")
        header.pop("__metadata__", None)
        if len(header) > MAX_TENSORS:
            raise ModelLimitError(f"the file has more than {MAX_TENSORS} tensors")
        extents: list[tuple[int, int]] = []
        tensors = {name: self._tensor(name, entry, base, extents) for name, entry in header.items()}
        _require_gapless(extents, len(self.buffer) - base)
        return tensors

    def _tensor(
        self, name: str, entry: object, base: int, extents: list[tuple[int, int]]
    ) -> StoredTensor:
        if not 0 < len(name) <= MAX_NAME_CHARS:
            raise ModelLimitError("a tensor's name is empty or too long")
        if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
            raise MalformedModelError("a tensor has other members than dtype, shape, data_offsets")
        dtype, shape = entry["dtype"], _counts(entry["shape"])
        if not isinstance(dtype, str) or dtype not in _TYPES:
            raise UnsupportedModelError(f"{name!r} is not one of {sorted(_TYPES)}")
        if len(shape) > MAX_DIMENSIONS:
            raise ModelLimitError(f"{name!r} has {len(shape)} dimensions")
        if not shape or 0 in shape:
            raise MalformedModelError(f"{name!r} is a scalar or empty")
        offsets = _counts(entry["data_offsets"])
        num_bytes = _TYPES[dtype].block_bytes
        for length in shape:
            num_bytes *= length
        if len(offsets) != 2 or offsets[1] - offsets[0] != num_bytes:
            raise MalformedModelError(f"{name!r} has not the length that its shape says")
        if base + offsets[1] > len(self.buffer):
            raise TruncatedModelError(f"{name!r} ends past the end of the file")
        extents.append((offsets[0], offsets[1]))
        return StoredTensor(
            type=_TYPES[dtype],
            shape=shape,
            num_bytes=num_bytes,
            read=lambda: self._view(base + offsets[0], num_bytes),
        )

    def _view(self, start: int, num_bytes: int) -> npt.NDArray[np.uint8]:
        return np.frombuffer(self.buffer, np.uint8, num_bytes, start)


def _counts(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > 2 * MAX_DIMENSIONS:
        raise MalformedModelError("a shape or extent is no short list")
    counts = tuple(item for item in value if type(item) is int and 0 <= item < 1 << 62)
    if len(counts) != len(value):
        raise MalformedModelError("a shape or extent holds no counts")
    return counts


def _require_gapless(extents: list[tuple[int, int]], data_bytes: int) -> None:
    """The format forbids gaps, so that no bytes are there that no tensor shows."""
    end_of_last = 0
    for start, end in sorted(extents):
        if start != end_of_last:
            raise MalformedModelError("tensors overlap, or there is a gap between them")
        end_of_last = end
    if end_of_last != data_bytes:
        raise MalformedModelError("bytes follow the last tensor")

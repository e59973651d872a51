"""How are many latencies kept small and still merged exactly?

OpenTelemetry's base-2 exponential histogram [OTel metrics data model, ExponentialHistogram]:
bucket i of scale s holds values in (b^i, b^(i+1)], b = 2^(2^-s).  Scale 5 puts every value within
1.1 % of its bucket's representative.  Values are whole nanoseconds inside, so a sum does not
depend on the order of merging: merge(parts) equals the histogram of all values, bit for bit.
"""

import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from telemetry import semconv
from telemetry.metrics import NS_PER_S, nearest_rank

Counts = NDArray[np.int64]

SCALE: Final = 5
MIN_SCALE: Final = 0
MAX_SCALE: Final = 8
MAX_BUCKETS: Final = 2048  # 1 ns to 10^5 s is 47 octaves: 1,504 buckets at scale 5
MAX_OCTAVE: Final = 64  # buckets lie within 2^-64 s to 2^64 s
MAX_COUNT: Final = 2**53
_HEADER: Final = struct.Struct("<bqqqq")  # scale, zero_count, offset, sum_ns, max_ns
_MAX_BLOB_BYTES: Final = _HEADER.size + 8 * MAX_BUCKETS


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpHistogram:
    """Counts of durations; ``counts[k]`` belongs to bucket index ``offset + k``."""

    scale: int = SCALE
    zero_count: int = 0
    offset: int = 0
    counts: tuple[int, ...] = ()
    sum_ns: int = 0
    max_ns: int = 0

    @classmethod
    def from_values(cls, values_s: Iterable[float]) -> Self:
        """Histogram of durations in seconds, each rounded to whole nanoseconds.

        Raises: ValueError on a negative or non-finite value.
        """
        return cls.from_ns(round(value * NS_PER_S) for value in values_s)

    @classmethod
    def from_ns(cls, values_ns: Iterable[int]) -> Self:
        """Histogram of durations in integer nanoseconds.

        Raises: ValueError on a negative value.
        """
        values = np.fromiter(values_ns, dtype=np.int64)
        if values.size == 0:
            return cls()
        if values.min() < 0:
            raise ValueError("a duration is not negative")
        positive = values[values > 0]
        zero_count = int(values.size - positive.size)
        if positive.size == 0:
            return cls(zero_count=zero_count)
        exponents = np.log2(positive / NS_PER_S) * 2.0**SCALE
        indexes = np.ceil(exponents).astype(np.int64) - 1
        offset = int(indexes.min())
        counts = tuple(int(n) for n in np.bincount(indexes - offset))
        return cls(
            zero_count=zero_count,
            offset=offset,
            counts=counts,
            sum_ns=int(positive.sum()),
            max_ns=int(positive.max()),
        )

    @property
    def count(self) -> int:
        """Number of values."""
        return self.zero_count + sum(self.counts)

    @property
    def sum_s(self) -> float:
        """Sum of the values in seconds."""
        return self.sum_ns / NS_PER_S

    @property
    def max_s(self) -> float:
        """Largest value in seconds; 0 when empty."""
        return self.max_ns / NS_PER_S

    def merge(self, other: "ExpHistogram") -> "ExpHistogram":
        """Histogram of both sets of values, at the coarser of the two scales."""
        return merge_all((self, other))

    def downscale(self, scale: int) -> Self:
        """The same values at a coarser scale: each step joins neighbouring buckets in pairs."""
        shift = self.scale - scale
        if shift < 0:
            raise ValueError(f"cannot refine scale {self.scale} to {scale}")
        if shift == 0 or not self.counts:
            return self if shift == 0 else self._with(scale, 0, ())
        offset = self.offset >> shift
        joined = [0] * (((self.offset + len(self.counts) - 1) >> shift) - offset + 1)
        for k, n in enumerate(self.counts):
            joined[((self.offset + k) >> shift) - offset] += n
        return self._with(scale, offset, tuple(joined))

    def quantile(self, q: float) -> float | None:
        """Nearest-rank q-quantile in seconds, within 1.1 % at scale 5; None when empty.

        Raises: ValueError if q lies outside 0..1.
        """
        if not 0 <= q <= 1:
            raise ValueError(f"a quantile lies in 0..1, not {q}")
        if not self.count:
            return None
        rank = nearest_rank(q, self.count)
        if rank <= self.zero_count:
            return 0.0
        k = int(np.searchsorted(np.cumsum(self.counts), rank - self.zero_count))
        lower = 2.0 ** ((self.offset + k) / 2**self.scale)
        upper = 2.0 ** ((self.offset + k + 1) / 2**self.scale)
        middle = 2 * lower * upper / (lower + upper)  # equal relative error to both sides
        return float(min(middle, self.max_s))

    def to_wire(self) -> dict[str, object]:
        """Plain JSON form; ``sum`` and ``max`` in seconds."""
        return {
            "scale": self.scale,
            "zero_count": self.zero_count,
            "offset": self.offset,
            "counts": list(self.counts),
            "count": self.count,
            "sum": self.sum_s,
            "max": self.max_s,
        }

    @classmethod
    def from_wire(cls, wire: Mapping[str, object]) -> Self:
        """Inverse of ``to_wire``, for input from outside.

        Raises: ValueError when a field is absent, ill-typed, out of bounds or contradicts another.
        """
        counts = wire.get("counts")
        if not isinstance(counts, (list, tuple)) or len(counts) > MAX_BUCKETS:
            raise ValueError(f"counts: want a list of at most {MAX_BUCKETS} numbers")
        scale = _int(wire, "scale", MIN_SCALE, MAX_SCALE)
        max_index = MAX_OCTAVE << scale
        parsed = cls(
            scale=scale,
            zero_count=_int(wire, "zero_count", 0, MAX_COUNT),
            offset=_int(wire, "offset", -max_index, max_index - len(counts)),
            counts=tuple(_int({"counts": n}, "counts", 0, MAX_COUNT) for n in counts),
            sum_ns=_seconds_to_ns(wire, "sum"),
            max_ns=_seconds_to_ns(wire, "max"),
        )
        if _int(wire, "count", 0, MAX_COUNT) != parsed.count:
            raise ValueError("count: want the sum of counts and zero_count")
        return parsed

    def to_attributes(self) -> dict[str, int | float | tuple[int, ...]]:
        """The ``starshade.itl.*`` span attributes."""
        return {
            semconv.ITL_SCALE: self.scale,
            semconv.ITL_OFFSET: self.offset,
            semconv.ITL_COUNTS: self.counts,
            semconv.ITL_ZERO_COUNT: self.zero_count,
            semconv.ITL_COUNT: self.count,
            semconv.ITL_SUM_S: self.sum_s,
            semconv.ITL_MAX_S: self.max_s,
        }

    @classmethod
    def from_attributes(cls, attributes: Mapping[str, object]) -> Self:
        """Inverse of ``to_attributes``.

        Raises: ValueError as ``from_wire`` does.
        """
        return cls.from_wire({name: attributes.get(key) for name, key in _WIRE_TO_KEY.items()})

    def to_bytes(self) -> bytes:
        """Compressed form for one database column."""
        head = _HEADER.pack(self.scale, self.zero_count, self.offset, self.sum_ns, self.max_ns)
        return zlib.compress(head + np.asarray(self.counts, dtype="<i8").tobytes())

    @classmethod
    def from_bytes(cls, blob: bytes) -> Self:
        """Inverse of ``to_bytes``.

        Raises: ValueError when the bytes are not such a form.
        """
        scale, zero_count, offset, sum_ns, max_ns, counts = unpack(blob)
        return cls(
            scale=scale,
            zero_count=zero_count,
            offset=offset,
            counts=tuple(counts.tolist()),
            sum_ns=sum_ns,
            max_ns=max_ns,
        )

    def _with(self, scale: int, offset: int, counts: tuple[int, ...]) -> Self:
        return type(self)(
            scale=scale,
            zero_count=self.zero_count,
            offset=offset,
            counts=counts,
            sum_ns=self.sum_ns,
            max_ns=self.max_ns,
        )


def merge_all(histograms: Iterable[ExpHistogram]) -> ExpHistogram:
    """One histogram of all values, at the coarsest scale met; order does not matter."""
    parts = list(histograms)
    filled = [part for part in parts if part.counts]
    scale = min((part.scale for part in parts), default=SCALE)
    scaled = [part.downscale(scale) for part in filled]
    offset = min((part.offset for part in scaled), default=0)
    end = max((part.offset + len(part.counts) for part in scaled), default=0)
    totals = np.zeros(end - offset, dtype=np.int64)
    for part in scaled:
        start = part.offset - offset
        totals[start : start + len(part.counts)] += np.asarray(part.counts, dtype=np.int64)
    return ExpHistogram(
        scale=scale,
        zero_count=sum(part.zero_count for part in parts),
        offset=offset,
        counts=tuple(int(n) for n in totals),
        sum_ns=sum(part.sum_ns for part in parts),
        max_ns=max((part.max_ns for part in parts), default=0),
    )


def unpack(blob: bytes) -> tuple[int, int, int, int, int, Counts]:
    """(scale, zero_count, offset, sum_ns, max_ns, counts) of ``ExpHistogram.to_bytes``.

    Raises: ValueError when the bytes are not such a form.
    """
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(blob, _MAX_BLOB_BYTES)
    except zlib.error as err:
        raise ValueError("not a compressed histogram") from err
    if not inflater.eof or len(data) < _HEADER.size or (len(data) - _HEADER.size) % 8:
        raise ValueError("not a compressed histogram")
    scale, zero_count, offset, sum_ns, max_ns = _HEADER.unpack_from(data)
    counts = np.frombuffer(data, dtype="<i8", offset=_HEADER.size)
    return scale, zero_count, offset, sum_ns, max_ns, counts


_WIRE_TO_KEY: Final = {
    "scale": semconv.ITL_SCALE,
    "zero_count": semconv.ITL_ZERO_COUNT,
    "offset": semconv.ITL_OFFSET,
    "counts": semconv.ITL_COUNTS,
    "count": semconv.ITL_COUNT,
    "sum": semconv.ITL_SUM_S,
    "max": semconv.ITL_MAX_S,
}


def _int(wire: Mapping[str, object], name: str, low: int, high: int) -> int:
    value = wire.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError(f"{name}: want an integer in {low}..{high}")
    return value


def _seconds_to_ns(wire: Mapping[str, object], name: str) -> int:
    value = wire.get(name)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise ValueError(f"{name}: want a number of seconds")
    if not 0 <= value <= MAX_COUNT / NS_PER_S:
        raise ValueError(f"{name}: want seconds in 0..{MAX_COUNT // NS_PER_S}")
    return round(value * NS_PER_S)

"""What can this machine do at most?  Measured by loops that do nothing else, by all threads.

A limit is the fastest tenth of the passes: a slower pass was disturbed, and a kernel should not be
praised for what its yardstick lost.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from runtime import _native
from runtime.bench.report import Cell, Row, rounded
from runtime.bench.summary import quantile

_PASSES = 20
_ROUNDS = 500_000
_FAST = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of all threads together: bytes and operations (a multiply and an add are two) a second."""

    read_bytes: int
    bytes_per_s: float
    int8_per_s: float
    f32_per_s: float

    def share(self, seconds: float, *, num_bytes: float, num_operations: float, mode: str) -> float:
        """The least time that memory or arithmetic leaves, over ``seconds``."""
        # Where bf16 is multiplied at all, it is by tiles, which hold half as many.
        whole, half = self.int8_per_s, self.int8_per_s / 2
        per_s = {"int8": whole, "rotated": whole, "bf16": half, "f32": self.f32_per_s}[mode]
        return max(num_bytes / self.bytes_per_s, num_operations / per_s) / seconds

    def rows(self) -> list[Row]:
        mib = self.read_bytes >> 20
        return [
            {"name": f"limit, read of {mib} MiB", "gb_per_s": rounded(self.bytes_per_s / 1e9)},
            {"name": "limit, int8", "gop_per_s": rounded(self.int8_per_s / 1e9)},
            {"name": "limit, f32", "gop_per_s": rounded(self.f32_per_s / 1e9)},
        ]


def measure_limits(cpu: _native.Cpu, *, num_bytes: int) -> Limits:
    """Reads as many bytes a pass: what fits a cache is read faster than what does not."""
    read_s = quantile(_native.probe_read(cpu, num_bytes, _PASSES), _FAST)
    speeds = {}
    for kind in ("int8", "f32"):
        num_operations, seconds = _native.probe_multiply(cpu, kind, _ROUNDS, _PASSES)
        speeds[kind] = num_operations / quantile(seconds, _FAST)
    return Limits(
        read_bytes=num_bytes,
        bytes_per_s=num_bytes / read_s,
        int8_per_s=speeds["int8"],
        f32_per_s=speeds["f32"],
    )


def kernel_row(
    name: str,
    seconds: Sequence[float],
    limits: Limits,
    *,
    num_bytes: float,
    num_operations: float,
    mode: str,
) -> dict[str, Cell]:
    """Median time of a pass, what it amounts to, and its share of what the machine can do."""
    median = quantile(seconds, 0.5)
    share = limits.share(median, num_bytes=num_bytes, num_operations=num_operations, mode=mode)
    return {
        "name": name,
        "median_ms": rounded(median * 1e3),
        "p10_ms": rounded(quantile(seconds, 0.1) * 1e3),
        "p90_ms": rounded(quantile(seconds, 0.9) * 1e3),
        "n": len(seconds),
        "gb_per_s": rounded(num_bytes / median / 1e9),
        "gop_per_s": rounded(num_operations / median / 1e9),
        "share_of_limit": rounded(share),
    }

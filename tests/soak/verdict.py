"""What do the windows of a soak say: does memory grow, does the engine get slower?"""

from collections.abc import Sequence
from statistics import median

from tests.soak.driver import Window

MAX_GROWTH_BYTES = 32 << 20
MAX_DRIFT_RATIO = 1.25
MIN_WINDOWS = 8  # below, the ends of the row are too short to compare


def problems(windows: Sequence[Window]) -> list[str]:
    """In words; none for a sound run.

    The first window warms caches and is left out; what remains is compared quarter by quarter, in
    processor time, which other programs on the machine change little.
    """
    found = [
        f"window {number}: {window.num_objects} sequences are still referred to"
        for number, window in enumerate(windows)
        if window.num_objects
    ]
    if len(windows) < MIN_WINDOWS:
        return found
    settled = windows[1:]
    first, last = settled[: len(settled) // 4 or 1], settled[-(len(settled) // 4 or 1) :]
    drift = median(w.probe_cpu_s for w in last) / median(w.probe_cpu_s for w in first)
    if drift > MAX_DRIFT_RATIO:
        found.append(f"the same prompts take {drift:.2f} times as long as at first")
    sizes = [[w.pss_bytes for w in part if w.pss_bytes is not None] for part in (first, last)]
    if all(sizes) and (growth := max(sizes[1]) - max(sizes[0])) > MAX_GROWTH_BYTES:
        found.append(f"memory grew by {growth >> 20} MiB")
    return found

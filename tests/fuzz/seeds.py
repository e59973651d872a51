"""Which good inputs do parsers get damaged copies of?  Our own, and the published ones if there."""

import os
from collections.abc import Sequence
from pathlib import Path

_REPO_ROOT = Path(__file__).resolve().parents[2]
MAX_SEEDS = 12
MAX_SEED_BYTES = 128 * 1024


def published(*patterns: str) -> tuple[bytes, ...]:
    """Files of ``$STARSHADE_VECTORS/attestation``, in the order of their names, not too many."""
    root = os.environ.get("STARSHADE_VECTORS")  # noqa: TID251 - tests are a process edge
    folder = (Path(root) if root else _REPO_ROOT.parent / "shared" / "vectors") / "attestation"
    found = sorted({path for pattern in patterns for path in folder.glob(pattern)})
    files = [path for path in found if path.stat().st_size <= MAX_SEED_BYTES]
    step = max(1, len(files) // MAX_SEEDS)
    return tuple(path.read_bytes() for path in files[::step])


def with_published(own: Sequence[bytes], *patterns: str) -> tuple[bytes, ...]:
    """Own seeds first."""
    return (*own, *published(*patterns))

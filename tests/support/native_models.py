"""How does a test get the compiled model of a file, on a chosen instruction set?"""

from pathlib import Path
from typing import Any

import pytest

from tests.support.resources import native_module

ISAS = ("avx512amx", "avx512vnni", "avx512", "avx2", "portable")


def require_isa(isa: str) -> Any:
    """The compiled module; skips when this CPU lacks ``isa``."""
    native = native_module()
    if isa and isa not in native.isas():
        pytest.skip(f"this CPU has no {isa}")
    return native


def load_native(path: Path, *, precision: str, isa: str = "", num_threads: int = 2) -> Any:
    """A LoadedNativeModel without a tokenizer: only runners are made of it."""
    native = require_isa(isa)
    from runtime.checkpoint import open_checkpoint
    from runtime.native_runner import LoadedNativeModel
    from runtime.native_weights import pack_weights

    cpu = native.Cpu(num_threads, isa)
    with open_checkpoint(path) as checkpoint:
        config = checkpoint.config_for()
        source = checkpoint.source(config, lambda ratio: None)
        weights = pack_weights(cpu, config, source, precision=precision)
        del source
    return LoadedNativeModel(
        name=path.stem,
        config=config,
        tokenizer=None,  # type: ignore[arg-type]
        weights_sha256="",
        weights=weights,
        cpu=cpu,
        precision=precision,
    )

"""How is this engine measured beside peers?  By its own command, a new process each round."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from runtime.bench.machine import find_commit
from tests.bench.subjects import (
    DECODE_CONTEXTS,
    DECODE_TOKENS,
    PREFILL_TOKENS,
    parse_json,
    run_command,
)


class Ours:
    """`starshade bench` from the sources around this file."""

    name = "starshade"

    def __init__(self, model: Path, *, threads: int, options: Sequence[str] = ()) -> None:
        self.version = find_commit() or "unknown"
        self._common = ["--model", str(model), "--threads", str(threads), "--json", *options]
        self.foreign_cpu = 0.0

    def single(self) -> Mapping[str, float]:
        lengths = [part for n in PREFILL_TOKENS for part in ("--context", str(n))]
        contexts = [part for n in DECODE_CONTEXTS for part in ("--context", str(n))]
        prefill = self._bench("prefill", *lengths)
        decode = self._bench("decode", "--tokens", str(DECODE_TOKENS), *contexts)
        speeds = {
            row["name"].replace("prompt", "prefill"): row["tokens_per_s"]
            for row in prefill["results"]
        }
        speeds |= {
            row["name"].replace("context", "decode"): row["tokens_per_s"]
            for row in decode["results"]
        }
        return speeds

    def _bench(self, command: str, *options: str) -> Any:
        call = [sys.executable, "-m", "gateway.cli", "bench", command, *self._common]
        done = run_command([*call, "--repeat", "1", *options])
        self.foreign_cpu = max(self.foreign_cpu, done.foreign_cpu)
        return parse_json(done.output, "bench")

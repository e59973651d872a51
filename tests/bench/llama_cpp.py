"""How is llama.cpp measured?  Its own llama-bench, and its server over HTTP.

Found in ``STARSHADE_LLAMA_BIN`` or on PATH; docs/performance.md says how it is built.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.bench.subjects import (
    DECODE_CONTEXTS,
    DECODE_TOKENS,
    PREFILL_TOKENS,
    PeerFailed,
    parse_json,
    run_command,
)


def find_program(name: str, folder: str | None) -> Path | None:
    """In ``folder`` if it is given, else on PATH."""
    found = shutil.which(name, path=folder) if folder else shutil.which(name)
    return Path(found) if found else None


class LlamaCpp:
    """llama-bench on one model file; no HTTP and no sampling are in its times."""

    def __init__(self, program: Path, model: Path, *, threads: int, kind: str) -> None:
        """``kind`` names the quantization."""
        self.name = f"llama.cpp {kind}"
        self.version = "unknown"
        self.foreign_cpu = 0.0
        how = ("-t", str(threads), "-fa", "1", "-r", "1", "-o", "json")
        self._call = (str(program), "-m", str(model), *how)

    def single(self) -> Mapping[str, float]:
        lengths, contexts = (",".join(map(str, n)) for n in (PREFILL_TOKENS, DECODE_CONTEXTS))
        rows = [
            *self._bench("-p", lengths, "-n", "0"),
            *self._bench("-p", "0", "-n", str(DECODE_TOKENS), "-d", contexts),
        ]
        return speeds(rows)

    def _bench(self, *options: str) -> list[Any]:
        done = run_command([*self._call, *options])
        self.foreign_cpu = max(self.foreign_cpu, done.foreign_cpu)
        rows = parse_json(done.output, "llama-bench")
        if not isinstance(rows, list) or not rows:
            raise PeerFailed("llama-bench printed no rows")
        self.version = f"b{rows[0].get('build_number')} {rows[0].get('build_commit')}"
        return rows


def speeds(rows: list[Any]) -> dict[str, float]:
    """Tokens per second by case. Raises: PeerFailed."""
    try:
        return {
            f"prefill {row['n_prompt']}" if row["n_prompt"] else f"decode {row['n_depth']}": float(
                row["avg_ts"]
            )
            for row in rows
        }
    except (KeyError, TypeError, ValueError) as err:
        raise PeerFailed("llama-bench printed other rows than expected") from err


def requantized(quantize: Path, model: Path, kind: str, folder: Path) -> Path:
    """``model`` as ``kind``, made once in ``folder``. Raises: PeerFailed."""
    path = folder / f"{model.stem}.{kind}.gguf"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        run_command([quantize, "--allow-requantize", model, partial, kind])
        partial.rename(path)
    return path

"""How is OpenVINO GenAI measured?  A script in its own Python, which loads the GGUF file itself.

``STARSHADE_OPENVINO_PYTHON`` names an interpreter that has ``openvino_genai``.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from runtime.bench.prompts import Prompts
from runtime.tokenizer import Tokenizer
from tests.bench.subjects import (
    DECODE_CONTEXTS,
    DECODE_TOKENS,
    PREFILL_TOKENS,
    PeerFailed,
    parse_json,
    run_command,
)

_SCRIPT = Path(__file__).with_name("genai_script.py")


class OpenVino:
    """`LLMPipeline` in process: no HTTP, greedy."""

    name = "OpenVINO GenAI"

    def __init__(self, python: Path, model: Path, tokenizer: Tokenizer, *, threads: int) -> None:
        self.version = "unknown"
        self.foreign_cpu = 0.0
        self._python = python
        self._task = {"model": str(model), "threads": threads, "tokens": DECODE_TOKENS}
        self._prompts = Prompts(tokenizer, seed=4)
        self._tokenizer = tokenizer

    def single(self) -> Mapping[str, float]:
        task = {**self._task, "prefill": self._texts(PREFILL_TOKENS)}
        task["decode"] = self._texts(DECODE_CONTEXTS)
        done = run_command([self._python, "-I", _SCRIPT], stdin=json.dumps(task))
        self.foreign_cpu = max(self.foreign_cpu, done.foreign_cpu)
        answer = parse_json(done.output.splitlines()[-1] if done.output else "", "OpenVINO")
        try:
            self.version = str(answer["version"])
            return {str(case): float(speed) for case, speed in answer["speeds"].items()}
        except (KeyError, TypeError, ValueError, AttributeError) as err:
            raise PeerFailed("OpenVINO answered otherwise than expected") from err

    def _texts(self, lengths: tuple[int, ...]) -> dict[int, list[str]]:
        """Two of each length: a prompt that was seen before may be in a cache."""
        return {
            n: [self._tokenizer.decode(self._prompts.take(n)) for _ in range(2)] for n in lengths
        }

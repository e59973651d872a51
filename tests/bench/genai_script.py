"""Runs in OpenVINO's own Python: a task as JSON on standard input, speeds as its last line."""

import importlib
import json
import sys
from typing import Any


def main() -> None:
    """Prefill is tokens over TTFT of one-token requests, decode one over TPOT; one to warm up."""
    task: dict[str, Any] = json.load(sys.stdin)
    genai: Any = importlib.import_module("openvino_genai")
    pipeline = genai.LLMPipeline(task["model"], "CPU", INFERENCE_NUM_THREADS=task["threads"])
    tokenizer = pipeline.get_tokenizer()

    def metrics(text: str, num_tokens: int) -> Any:
        config = genai.GenerationConfig()
        config.max_new_tokens = num_tokens
        config.ignore_eos = True
        config.do_sample = False
        config.apply_chat_template = False
        inputs = tokenizer.encode(text, add_special_tokens=False)
        return pipeline.generate(inputs, config).perf_metrics

    speeds: dict[str, float] = {}
    metrics("Hello", 2)
    for length, (first, text) in task["prefill"].items():
        metrics(first, 1)  # warms up for this length
        found = metrics(text, 1)
        speeds[f"prefill {length}"] = found.get_num_input_tokens() / found.get_ttft().mean * 1e3
    for context, (_, text) in task["decode"].items():
        found = metrics(text, task["tokens"] + 1)
        speeds[f"decode {context}"] = 1e3 / found.get_tpot().mean
    sys.stdout.write("\n" + json.dumps({"version": genai.__version__, "speeds": speeds}) + "\n")


if __name__ == "__main__":
    main()

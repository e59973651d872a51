"""Does the default model, compiled, say what its float32 reference says, token by token?"""

import subprocess
import sys
from typing import Any

import pytest

from tests.support.resources import model_path, native_module
from tests.support.teacher import BLOCK_SIZE, NUM_BLOCKS, load_reference, margins_of_misses
from tests.support.tiny_model import write_tiny_gguf

# precision -> (share of positions that agree, largest margin of those that do not). Activations
# of 8 bits: llama.cpp's own share, 684 of 706.
BARS = {"f32": (0.995, 0.02), "int8": (684 / 706, 0.5)}


@pytest.mark.model
@pytest.mark.parametrize("precision", BARS)
def test_teacher_forced_top1_agrees(precision: str) -> None:
    native_module()
    from runtime.native_runner import NativeRunner, load_native_model

    reference = load_reference()
    model = load_native_model(model_path(), precision=precision)
    assert model.weights_sha256 == reference["sha256"]
    kv_dtype = "f32" if precision == "f32" else "bf16"
    runner = NativeRunner(model, num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE, kv_dtype=kv_dtype)
    num_positions, misses = margins_of_misses(reference, lambda plan: runner.run(plan).best_ids)
    least_agreement, largest_margin = BARS[precision]
    assert num_positions - len(misses) >= least_agreement * num_positions
    assert max(misses, default=0) < largest_margin


FIRST_TOKEN = """
import sys, time
from pathlib import Path
from runtime import Engine, EngineConfig, GenerationRequest, NullObserver, SamplingParams
from runtime.backend import BackendSettings, load_backend

model = load_backend(Path(sys.argv[1]), BackendSettings(num_threads=1))
assert model.kind == "native"
engine = Engine(
    runner=model.new_runner(8),
    sampler=model.sampler,
    tokenizer=model.tokenizer,
    config=EngineConfig(num_blocks=8),
    observer=NullObserver(),
    clock_ns=time.monotonic_ns,
    fresh_seed=lambda: 1,
)
prompt = tuple(model.tokenizer.encode_chat([{"role": "user", "content": "the user"}]))
for temperature in (0.0, 1.0):
    sampling = SamplingParams(max_tokens=2, temperature=temperature, ignore_eos=True)
    engine.add(
        GenerationRequest(
            request_id=str(temperature), prompt_token_ids=prompt, sampling=sampling, arrival_ns=0
        )
    )
while engine.has_work():
    assert all(delta.finish_reason in (None, "length") for delta in engine.step())
assert "torch" not in sys.modules
print("ok")
"""


def test_torch_is_not_imported_on_the_way_to_the_first_token(tmp_path: Any) -> None:
    native_module()
    path = write_tiny_gguf(tmp_path / "tiny.gguf")
    done = subprocess.run(
        [sys.executable, "-c", FIRST_TOKEN, str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "ok"), done.stderr


WITHOUT_NATIVE = """
import sys
sys.modules["runtime._native"] = None  # what a wheel without a compiler has
from pathlib import Path
from runtime.backend import BackendSettings, load_backend
from tests.support.plans import Chunk, build_plan

model = load_backend(Path(sys.argv[1]), BackendSettings(num_threads=1))
assert model.kind == "torch"
runner = model.new_runner(model.count_blocks(1 << 20))
chunk = Chunk(token_ids=[5, 6, 7], start=0, block_ids=[0])
assert runner.run(build_plan([chunk], block_size=16)).shape == (1, runner.vocab_size)
print("ok")
"""


def test_torch_computes_where_nothing_is_compiled(tmp_path: Any) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_NATIVE, str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "ok"), done.stderr

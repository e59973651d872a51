"""A whole model on Triton's kernels: packed weights, recorded decode steps; in the interpreter."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from runtime.devices.base import Step, TorchDevice  # noqa: E402
from runtime.devices.cuda import CudaDevice  # noqa: E402
from runtime.kernels.linear_w4a16 import W4Matrix  # noqa: E402
from runtime.model_runner import ModelRunner, load_model  # noqa: E402
from tests.support.plans import Chunk, build_plan  # noqa: E402
from tests.support.tiny_model import tiny_vocabulary, write_tiny_gguf  # noqa: E402

if TYPE_CHECKING:
    from runtime.plan import StepPlan

BLOCK_SIZE = 4


class InterpretedGpu(CudaDevice):
    """What a GPU runs, in float32 on the CPU; a recorded step is simply run again."""

    item_bytes = 4

    def __init__(self, weights: str = "stored") -> None:
        super().__init__("cpu", weights=weights)  # type: ignore[arg-type]
        self.num_captured = 0

    @property
    def dtype(self) -> Any:
        return torch.float32

    def capture(self, step: Step) -> Step:
        self.num_captured += 1
        return step


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf")


def plans() -> "Sequence[StepPlan]":
    """Three prompts, then three steps of one token each: sizes 3, 3 and 2, padded to 4 and 2."""
    rng = np.random.default_rng(5)
    contexts = [5, 1, 9]

    def chunk(index: int, start: int, count: int) -> Chunk:
        token_ids = [int(t) for t in rng.integers(0, len(tiny_vocabulary()), count)]
        blocks = range(4 * index, 4 * index + 4)
        return Chunk(token_ids=token_ids, start=start, block_ids=blocks, all_logits=False)

    steps = [[chunk(i, 0, n) for i, n in enumerate(contexts)]]
    for step, members in enumerate([(0, 1, 2), (2, 0, 1), (1, 2)]):
        steps.append([chunk(i, contexts[i] + step, 1) for i in members])
    return [build_plan(chunks, block_size=BLOCK_SIZE) for chunks in steps]


def run(device: TorchDevice, path: Path) -> list[np.ndarray]:
    runner = ModelRunner(load_model(path, device=device), num_blocks=12, block_size=BLOCK_SIZE)
    return [runner.run(plan) for plan in plans()]


def test_the_model_on_triton_equals_the_reference(path: Path) -> None:
    device = InterpretedGpu()
    for got, want in zip(run(device, path), run(TorchDevice("cpu"), path), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)
    assert device.num_captured == 2  # of 4 rows and of 2: sizes are recorded once


def test_four_bit_weights_stay_packed(path: Path) -> None:
    layers = load_model(path, device=InterpretedGpu()).weights.layers
    for layer in layers:
        assert isinstance(layer.attention_output, W4Matrix)  # Q4_1 in the file, as gate and up
        assert isinstance(layer.gate_up, W4Matrix)
        assert isinstance(layer.down, torch.Tensor)  # Q8_0


def test_fp8_weights_keep_the_distribution(path: Path) -> None:
    for got, want in zip(
        run(InterpretedGpu("fp8"), path), run(TorchDevice("cpu"), path), strict=True
    ):
        error = np.abs(got - want).max() / np.abs(want).max()
        assert 0 < error < 0.2  # two roundings to 3 bits of mantissa in each of its few layers

"""Does every architecture give the logits that ``transformers`` gives, from both kinds of files?"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from runtime.weights.quant import TENSOR_TYPES
from tests.support.decoders import ReferenceDecoder, load_reference
from tests.support.hf_gguf import write_gguf
from tests.support.hf_models import MODELS, WINDOW, logits_of, make_model, save_model, tokens

TOLERANCE = 1e-4  # float32 sums in another order; logits are of the order of 5
NUM_TOKENS = 60
# transformers 5 warns of LongRoPE's original context and of its own deprecated calls.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny products gain nothing by threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@dataclass(frozen=True)
class Case:
    name: str
    model: Any
    decoder: ReferenceDecoder  # from the safetensors folder
    token_ids: list[int]
    logits: npt.NDArray[np.float32]


@pytest.fixture(scope="module", params=MODELS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    model, token_ids = make_model(request.param), tokens(NUM_TOKENS)
    return Case(
        name=request.param,
        model=model,
        decoder=load_reference(save_model(model, tmp_path_factory.mktemp("folder"))),
        token_ids=token_ids,
        logits=logits_of(model, token_ids),
    )


def assert_close(got: npt.NDArray[np.float32], want: npt.NDArray[np.float32]) -> None:
    assert got.shape == want.shape
    assert 0.5 < np.abs(want).max() < 20
    assert np.abs(got - want).max() < TOLERANCE


def test_folders_give_the_logits_of_transformers(case: Case) -> None:
    assert_close(case.decoder.whole(case.token_ids), case.logits)


def test_gguf_files_give_the_logits_of_transformers(case: Case, tmp_path: Path) -> None:
    if case.name in ("gemma2", "qwen2-window"):
        pytest.skip("GGUF cannot say what this model's config.json says")
    decoder = load_reference(write_gguf(case.model, tmp_path / "model.gguf"))
    assert_close(decoder.whole(case.token_ids), case.logits)


def test_gemma2_gguf_scales_queries_by_the_head(tmp_path: Path) -> None:
    model = make_model("gemma2", query_pre_attn_scalar=32)
    decoder = load_reference(write_gguf(model, tmp_path / "model.gguf"))
    assert_close(decoder.whole(tokens(NUM_TOKENS)), logits_of(model, tokens(NUM_TOKENS)))


@pytest.mark.parametrize("cuts", [[1], [WINDOW, 2 * WINDOW, 50], [*range(20, 40)]])
def test_chunked_prefill_gives_the_same_logits(case: Case, cuts: list[int]) -> None:
    """Chunks shorter and longer than the window, in scrambled blocks."""
    spans = list(pairwise([0, *cuts, NUM_TOKENS]))
    assert_close(case.decoder.chunked(case.token_ids, spans), case.logits)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["llama3", "gemma3", "phi3"])
def test_half_precision_folders_are_read_exactly(name: str, dtype: str, tmp_path: Path) -> None:
    model = make_model(name)
    decoder = load_reference(save_model(model, tmp_path, dtype=dtype))  # rounds the model, too
    assert_close(decoder.whole(tokens(NUM_TOKENS)), logits_of(model, tokens(NUM_TOKENS)))


def test_sharded_folders_are_read(tmp_path: Path) -> None:
    model = make_model("qwen3")
    folder = save_model(model, tmp_path, max_shard="100KB")
    assert len(list(folder.glob("*.safetensors"))) > 2
    decoder = load_reference(folder)
    assert_close(decoder.whole(tokens(NUM_TOKENS)), logits_of(model, tokens(NUM_TOKENS)))


@pytest.mark.parametrize("prefix", ["language_model.model.", "model.language_model."])
def test_the_language_model_of_one_with_vision_is_run(prefix: str, tmp_path: Path) -> None:
    """As Gemma 3 is published from 4B on: under either prefix, with a tower that is left out."""
    library: Any = pytest.importorskip("safetensors.numpy")
    model = make_model("gemma3")
    save_model(model, tmp_path)
    path = tmp_path / "model.safetensors"
    arrays = library.load_file(path)
    renamed = {name.replace("model.", prefix, 1): array for name, array in arrays.items()}
    for name in ("vision_tower.vision_model.x.weight", "multi_modal_projector.y.weight"):
        renamed[name] = np.ones((2, 2), np.float32)
    library.save_file(renamed, path, metadata={"format": "pt"})
    text = json.loads((tmp_path / "config.json").read_text())
    outer = {"model_type": "gemma3", "text_config": text, "vision_config": {"x": 1}}
    (tmp_path / "config.json").write_text(json.dumps(outer))
    decoder = load_reference(tmp_path)
    assert_close(decoder.whole(tokens(NUM_TOKENS)), logits_of(model, tokens(NUM_TOKENS)))


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "F16", "BF16"])
def test_quantized_gguf_equals_its_dequantized_weights(kind: str, tmp_path: Path) -> None:
    """transformers computes with the weights that ggml's package dequantizes."""
    gguf: Any = pytest.importorskip("gguf")
    model = make_model("qwen2")
    ggml_type = gguf.GGMLQuantizationType[kind]
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                packed = gguf.quantize(parameter.numpy(), ggml_type)
                parameter.copy_(torch.from_numpy(gguf.dequantize(packed, ggml_type)))
    path = write_gguf(make_model("qwen2"), tmp_path / "model.gguf", kind=lambda name: kind)
    got = load_reference(path).whole(tokens(NUM_TOKENS))
    assert_close(got, logits_of(model, tokens(NUM_TOKENS)))


@pytest.mark.parametrize(("quantize", "error"), [("int8", 0.1), ("int4", 1.5)])
def test_packing_on_load_stays_near(quantize: str, error: float, tmp_path: Path) -> None:
    """Random weights are the worst case: no item of a block is nearer to another than by chance."""
    model = make_model("llama3")
    decoder = load_reference(save_model(model, tmp_path), quantize=quantize)
    got, want = decoder.whole(tokens(NUM_TOKENS)), logits_of(model, tokens(NUM_TOKENS))
    assert 0 < np.sqrt(np.square(got - want).mean()) < error


K_QUANTS = ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")


def test_mixed_k_quants_equal_their_dequantized_weights(tmp_path: Path) -> None:
    """ggml's package cannot pack these types, so the blocks are random and the model follows."""
    gguf: Any = pytest.importorskip("gguf")
    model = make_model("llama3", hidden_size=256, intermediate_size=256, num_hidden_layers=1)
    rng, packed = np.random.default_rng(0), {}
    for index, (name, parameter) in enumerate(model.named_parameters()):
        kind = K_QUANTS[index % len(K_QUANTS)]
        if (
            parameter.ndim == 2
            and "_proj" in name
            and "q_proj" not in name
            and "k_proj" not in name
        ):
            raw = random_blocks(kind, parameter.numel() // 256, rng)
            ggml_type = gguf.GGMLQuantizationType[kind]
            packed[name] = (kind, raw.reshape(parameter.shape[0], -1))
            with torch.no_grad():
                parameter.copy_(torch.from_numpy(gguf.dequantize(packed[name][1], ggml_type)))
    assert {kind for kind, _ in packed.values()} == set(K_QUANTS)
    decoder = load_reference(write_gguf(model, tmp_path / "model.gguf", packed=packed))
    assert_close(decoder.whole(tokens(NUM_TOKENS)), logits_of(model, tokens(NUM_TOKENS)))


def random_blocks(kind: str, count: int, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Blocks whose items are of the order of a tenth."""
    tensor_type = next(one for one in TENSOR_TYPES.values() if one.name == kind)
    raw = rng.integers(0, 256, (count, tensor_type.block_bytes), np.uint8)
    for first, end in tensor_type.scales:
        numbers = np.full((count, (end - first) // 2), 1e-4, "<f2")
        raw[:, first:end] = numbers.view(np.uint8)
    return raw

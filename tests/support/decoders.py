"""Which logits does a model file give?  The torch reference alone, without tokenizer and engine."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from runtime.checkpoint import open_checkpoint
from runtime.devices.base import TorchDevice
from runtime.model_runner import LoadedModel, ModelRunner
from runtime.models.loader import load_decoder
from tests.support.plans import Chunk, build_plan

_BLOCK_SIZE = 16


class ReferenceDecoder:
    """Logits of every position, in float32."""

    def __init__(self, model: LoadedModel) -> None:
        self.config = model.config
        self._model = model

    def whole(self, token_ids: Sequence[int]) -> npt.NDArray[np.float32]:
        """From one prefill: (T, V)."""
        return self.chunked(token_ids, [(0, len(token_ids))])

    def chunked(
        self, token_ids: Sequence[int], spans: Sequence[tuple[int, int]]
    ) -> npt.NDArray[np.float32]:
        """From one step for each span, in scrambled blocks: (T, V)."""
        num_blocks = -(-len(token_ids) // _BLOCK_SIZE)
        runner = ModelRunner(self._model, num_blocks=num_blocks, block_size=_BLOCK_SIZE)
        blocks = np.random.default_rng(1).permutation(num_blocks).tolist()
        return np.concatenate(
            [
                runner.run(
                    build_plan(
                        [
                            Chunk(
                                token_ids=token_ids[start:end],
                                start=start,
                                block_ids=blocks,
                                all_logits=True,
                            )
                        ],
                        block_size=_BLOCK_SIZE,
                    )
                )
                for start, end in spans
            ]
        )


def load_reference(path: Path, *, quantize: str = "none") -> ReferenceDecoder:
    """Raises: runtime.errors.ModelFileError."""
    device = TorchDevice("cpu")
    with open_checkpoint(path) as checkpoint:
        config = checkpoint.config_for()
        source = checkpoint.source(config, lambda ratio: None, quantize=quantize)
        weights = load_decoder(config, source, device)
        return ReferenceDecoder(
            LoadedModel(
                name=checkpoint.name,
                config=config,
                tokenizer=None,  # type: ignore[arg-type] # only runners are made of it
                weights_sha256="",
                weights=weights,
                device=device,
            )
        )

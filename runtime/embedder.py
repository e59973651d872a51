"""What vector does a text have?  The decoder's last hidden states, pooled and of length one.

Which states count is the model's own: it was trained for the mean of all, or for the last
[Zhang et al. 2025, Qwen3 Embedding, sec. 2]. Computed by torch, beside an engine if there is one: a
text is computed whole, from nothing, and nothing of it is kept.
"""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from runtime.errors import InvalidPrompt, PromptTooLong
from runtime.model_runner import LoadedModel, ModelRunner
from runtime.plan import Float32Array, StepPlan

_BLOCK_SIZE: Final = 16


class Embedder:
    """``runtime.embedding.TextEmbedder`` of a model that has a pooling; one text at a time."""

    def __init__(self, model: LoadedModel, *, max_tokens: int, max_batch_tokens: int = 512) -> None:
        """Raises: ValueError for a model that has none, InvalidConfig."""
        if model.config.pooling == "none":
            raise ValueError("the model has no pooling")
        self.num_dimensions = model.config.hidden_size
        self.max_tokens = min(max_tokens, model.config.max_context_tokens)
        self._is_mean = model.config.pooling == "mean"
        self._max_batch_tokens = max_batch_tokens
        self._vocab_size = model.config.vocab_size
        # With the identity for a head the "logits" of a row are its normed hidden state.
        head = model.device.weights(np.eye(self.num_dimensions, dtype=np.float32))
        self._runner = ModelRunner(
            replace(
                model,
                config=replace(model.config, final_softcap=0.0),
                weights=replace(model.weights, head=head),
            ),
            num_blocks=-(-self.max_tokens // _BLOCK_SIZE),
            block_size=_BLOCK_SIZE,
        )
        self._lock = threading.Lock()

    def embed(self, token_ids: Sequence[int]) -> Float32Array:
        if len(token_ids) > self.max_tokens:
            raise PromptTooLong(
                f"the text has {len(token_ids)} tokens; it may have {self.max_tokens}",
                param="input",
            )
        if not token_ids or not all(0 <= token_id < self._vocab_size for token_id in token_ids):
            raise InvalidPrompt("the text has no token, or one that is unknown", param="input")
        pooled = np.zeros(self.num_dimensions, np.float64)
        with self._lock:
            for plan in self._plans(np.asarray(token_ids, np.int32)):
                hidden = self._runner.run(plan)
                if self._is_mean:
                    pooled += hidden.sum(axis=0, dtype=np.float64)
                elif len(hidden):
                    pooled += hidden[-1]
        length = float(np.linalg.norm(pooled))
        if not np.isfinite(length) or length == 0:
            raise ValueError("the hidden states are not finite, or nothing")
        return (pooled / length).astype(np.float32)

    def _plans(self, token_ids: "np.typing.NDArray[np.int32]") -> Iterator[StepPlan]:
        """Parts of one sequence, in order, whose blocks are the first ones of the cache."""
        num_tokens = len(token_ids)
        for start in range(0, num_tokens, self._max_batch_tokens):
            stop = min(start + self._max_batch_tokens, num_tokens)
            positions = np.arange(start, stop, dtype=np.int32)
            wanted = positions if self._is_mean else positions[positions == num_tokens - 1]
            yield StepPlan(
                token_ids=token_ids[start:stop],
                positions=positions,
                query_starts=np.array([0, stop - start], np.int32),
                context_lens=np.array([stop], np.int32),
                prompt_lens=np.array([num_tokens], np.int32),
                batch_invariant=np.array([True]),
                block_tables=np.arange(-(-stop // _BLOCK_SIZE), dtype=np.int32)[None],
                slot_mapping=positions.astype(np.int64),
                logits_rows=wanted - np.int32(start),
            )

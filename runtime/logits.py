"""What is done to a row of logits before a token is chosen: bias, penalties, grammar.

Everything is a function of the request's parameters and its own tokens, never of the batch.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from runtime.plan import Float32Array

TokenMask: TypeAlias = npt.NDArray[np.uint32]
"""(ceil(V / 32),): bit ``i % 32`` of word ``i // 32`` says whether token ``i`` may be chosen."""


class Adjustments(Protocol):
    """The part of ``runtime.sampling.SamplingParams`` that changes logits."""

    @property
    def logit_bias(self) -> Mapping[int, float]: ...
    @property
    def presence_penalty(self) -> float: ...
    @property
    def frequency_penalty(self) -> float: ...
    @property
    def repetition_penalty(self) -> float: ...


class TokenHistory:
    """Which tokens one sequence has, as far as its penalties look; grows with its output."""

    __slots__ = ("_counts", "_prompt")

    def __init__(self, prompt_token_ids: Iterable[int]) -> None:
        self._prompt = frozenset(prompt_token_ids)
        self._counts: dict[int, int] = {}

    def push(self, token_id: int) -> None:
        self._counts[token_id] = self._counts.get(token_id, 0) + 1

    def counts(self, drafts: Iterable[int] = ()) -> Mapping[int, int]:
        """How often each token is in the output, were ``drafts`` its next tokens."""
        counts = self._counts
        for token_id in drafts:
            counts = counts.copy() if counts is self._counts else counts
            counts[token_id] = counts.get(token_id, 0) + 1
        return counts

    def seen(self, counts: Mapping[int, int]) -> frozenset[int]:
        """The tokens of the prompt, and those counted."""
        return self._prompt.union(counts)


def adjusted(
    logits: Float32Array,
    params: Adjustments,
    history: TokenHistory | None,
    drafts: Iterable[int] = (),
) -> Float32Array:
    """One row of logits (V,) with bias and penalties; a copy if anything changes.

    In this order: bias, repetition, frequency and presence. ``history`` None has no penalties.
    """
    if not params.logit_bias and history is None:
        return logits
    logits = logits.copy()
    if params.logit_bias:
        ids = np.fromiter(params.logit_bias, np.intp)
        logits[ids] += np.fromiter(params.logit_bias.values(), np.float32)
    if history is not None:
        _penalize(logits, params, history, history.counts(drafts))
    return logits


def _penalize(
    logits: Float32Array, params: Adjustments, history: TokenHistory, counts: Mapping[int, int]
) -> None:
    if params.repetition_penalty != 1.0:
        ids = np.fromiter(history.seen(counts), np.intp)
        values, penalty = logits[ids], np.float32(params.repetition_penalty)
        logits[ids] = np.where(values > 0, values / penalty, values * penalty)
    if counts and (params.frequency_penalty or params.presence_penalty):
        ids = np.fromiter(counts, np.intp)
        times = np.fromiter(counts.values(), np.float32)
        logits[ids] -= params.frequency_penalty * times + np.float32(params.presence_penalty)


def masked(logits: Float32Array, allowed: TokenMask) -> Float32Array:
    """A copy in which tokens that are not allowed have minus infinity."""
    bits = np.unpackbits(allowed.view(np.uint8), count=logits.size, bitorder="little")
    return np.where(bits.view(np.bool_), logits, np.float32(-np.inf))

"""Which token comes next?  Greedy, or one seeded draw from the truncated distribution.

A draw depends on the sequence's seed, the index of its output token and its own logits alone:
never on the batch it happens to share a step with.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from runtime.errors import RuntimeFault
from runtime.plan import Float32Array

Ids = npt.NDArray[np.intp]
Weights = npt.NDArray[np.float64]

_FIRST_CANDIDATES = 256  # enough for most nuclei; more are looked at when they are not


class NonFiniteLogitsError(RuntimeFault):
    """The model produced NaN or infinity: broken weights or a broken kernel."""

    code: ClassVar[str] = "non_finite_logits"


class Params(Protocol):
    """What the sampler reads of ``runtime.sequence.SamplingParams``."""

    @property
    def temperature(self) -> float: ...
    @property
    def top_p(self) -> float: ...
    @property
    def top_k(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRow:
    """One row of logits: ``step`` is the index of the output token that is drawn, from 0."""

    params: Params
    rng_seed: int
    step: int


class Sampler:
    """Stateless."""

    def sample(self, logits: Float32Array, rows: Sequence[SampleRow]) -> list[int]:
        """One token id per row of ``logits`` (S, V).

        Raises: NonFiniteLogitsError when the best logit of a row is not finite.
        """
        if len(logits) != len(rows):
            raise ValueError(f"{len(logits)} rows of logits for {len(rows)} sequences")
        return [_sample(row_logits, row) for row_logits, row in zip(logits, rows, strict=True)]


def uniform(rng_seed: int, step: int) -> float:
    """A number in [0, 1) that is a function of its arguments, the same on every machine."""
    message = b"starshade/sample/v1" + rng_seed.to_bytes(16, "little", signed=True)
    digest = hashlib.sha256(message + step.to_bytes(8, "little")).digest()
    return (int.from_bytes(digest[:8], "little") >> 11) * 2.0**-53


def _sample(logits: Float32Array, row: SampleRow) -> int:
    best = int(logits.argmax())
    if not np.isfinite(logits[best]):
        raise NonFiniteLogitsError(f"the best of {logits.size} logits is not finite")
    params = row.params
    if params.temperature == 0 or params.top_k == 1:
        return best
    with np.errstate(under="ignore", over="ignore"):  # a cold token's weight is 0
        ids, weights = _candidates(logits, params, float(logits[best]))
    cumulative = weights.cumsum()
    # The draw is below the total, but the product may round up to it.
    index = int(cumulative.searchsorted(uniform(row.rng_seed, row.step) * cumulative[-1], "right"))
    return int(ids[min(index, len(ids) - 1)])


def _candidates(logits: Float32Array, params: Params, best: float) -> tuple[Ids, Weights]:
    """Token ids that may be drawn and their weights; top-k first, then top-p of what is left."""
    limit = params.top_k or logits.size
    if limit >= logits.size and params.top_p >= 1:
        return np.arange(logits.size), _softmax_weights(logits, params.temperature, best)
    if params.top_p >= 1:
        ids = _largest(logits, limit)
        return ids, _softmax_weights(logits[ids], params.temperature, best)
    total = None
    if limit >= logits.size:
        total = float(_softmax_weights(logits, params.temperature, best).sum())
    num_looked_at = min(limit, _FIRST_CANDIDATES) if total is not None else limit
    ids = _largest(logits, num_looked_at)
    weights = _softmax_weights(logits[ids], params.temperature, best)
    wanted = params.top_p * (weights.sum() if total is None else total)
    if weights.sum() < wanted:
        ids = _largest(logits, limit)
        weights = _softmax_weights(logits[ids], params.temperature, best)
    # The nucleus: the fewest tokens whose weight reaches top_p [Holtzman et al. 2020, sec. 3.1].
    size = min(int(weights.cumsum().searchsorted(wanted)) + 1, len(ids))
    return ids[:size], weights[:size]


def _largest(logits: Float32Array, count: int) -> Ids:
    """Ids of the ``count`` largest logits, largest first, ties by id."""
    count = min(count, logits.size)
    if count < logits.size:
        threshold = np.partition(logits, logits.size - count)[logits.size - count]
        ids = np.flatnonzero(logits >= threshold)
    else:
        ids = np.arange(logits.size)
    return ids[np.argsort(-logits[ids], kind="stable")][:count]


def _softmax_weights(logits: Float32Array, temperature: float, best: float) -> Weights:
    """exp((x - best) / temperature), in float64; the best has weight 1."""
    weights: Weights = np.exp((logits.astype(np.float64) - best) / temperature)
    return weights

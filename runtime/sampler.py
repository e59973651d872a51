"""Which token comes next?  Greedy, or one seeded draw from the truncated distribution.

In this order: bias and penalties, the grammar's mask, temperature, top-k, top-p, min-p. A draw
depends on the sequence's seed, the index of its output token and its own logits alone: never on the
batch it happens to share a step with. That also makes speculation lossless: the token drawn from
the logits after a draft is the one that would have been drawn without it.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from runtime.errors import RuntimeFault
from runtime.logits import Adjustments, TokenHistory, TokenMask, adjusted, masked
from runtime.plan import Float32Array

Ids = npt.NDArray[np.intp]
Weights = npt.NDArray[np.float64]

BROKEN_ROW = -1  # in place of a token id, where the logits of a row have no finite best
_FIRST_CANDIDATES = 256  # enough for most nuclei; more are looked at when they are not


class NonFiniteLogitsError(RuntimeFault):
    """The model produced NaN or infinity: broken weights or a broken kernel."""

    code: ClassVar[str] = "non_finite_logits"


class Params(Adjustments, Protocol):
    """What the sampler reads of ``runtime.sampling.SamplingParams``."""

    @property
    def temperature(self) -> float: ...
    @property
    def top_p(self) -> float: ...
    @property
    def top_k(self) -> int: ...
    @property
    def min_p(self) -> float: ...
    @property
    def is_greedy(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRow:
    """One row of logits: ``step`` is the index of the output token that is drawn, from 0.

    ``history`` comes with penalties alone; ``drafts`` are tokens after it that this row takes for
    granted. ``allowed`` holds at least one token.
    """

    params: Params
    rng_seed: int
    step: int
    history: TokenHistory | None = field(default=None, repr=False)
    drafts: tuple[int, ...] = field(default=(), repr=False)
    allowed: TokenMask | None = field(default=None, repr=False)

    @property
    def is_plain(self) -> bool:
        """Whether the logits are taken as they are: no bias, no penalty, no grammar."""
        return self.allowed is None and self.history is None and not self.params.logit_bias


@dataclass(frozen=True, slots=True, kw_only=True)
class LogprobsWanted:
    """Row ``row_idx`` of the logits gave ``token_id``; ``num_top`` of the best are wanted too."""

    row_idx: int
    token_id: int
    num_top: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprobs:
    """Natural logarithms of the model's own distribution: before bias, penalties and temperature.

    ``top`` is (token id, log probability), most probable first, ties by id.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...]


class LogitsView(Protocol):
    """What a draw asks of one row of logits (V,); ``best`` is the largest, which is finite."""

    def largest(self, count: int) -> Ids:
        """Ids of the ``count`` largest, largest first, ties by id."""

    def total(self, temperature: float, best: float) -> float:
        """Sum of exp((x - best) / temperature) over all."""

    def draw(self, temperature: float, best: float, point: float) -> int:
        """The id at which that sum, in the order of ids, exceeds ``point`` (in [0, 1)) of it."""


@dataclass(frozen=True, slots=True)
class NumpyView:
    """The definition."""

    logits: Float32Array

    def largest(self, count: int) -> Ids:
        return _largest(self.logits, count)

    def total(self, temperature: float, best: float) -> float:
        return float(_softmax_weights(self.logits, temperature, best).sum())

    def draw(self, temperature: float, best: float, point: float) -> int:
        return _index_of(_softmax_weights(self.logits, temperature, best), point)


class Sampler:
    """Stateless."""

    def sample(self, logits: Float32Array, rows: Sequence[SampleRow]) -> list[int]:
        """One token id per row of ``logits`` (S, V); BROKEN_ROW for one without a finite best."""
        if len(logits) != len(rows):
            raise ValueError(f"{len(logits)} rows of logits for {len(rows)} sequences")
        return [
            sample_row_or_none(row_logits, row)
            for row_logits, row in zip(logits, rows, strict=True)
        ]

    def logprobs(
        self, logits: Float32Array, wanted: Sequence[LogprobsWanted]
    ) -> list[TokenLogprobs]:
        """For rows of the ``logits`` that were sampled last, in the order of ``wanted``."""
        return [row_logprobs(logits[one.row_idx], one) for one in wanted]


def uniform(rng_seed: int, step: int) -> float:
    """A number in [0, 1) that is a function of its arguments, the same on every machine."""
    message = b"starshade/sample/v1" + rng_seed.to_bytes(16, "little", signed=True)
    digest = hashlib.sha256(message + step.to_bytes(8, "little")).digest()
    return (int.from_bytes(digest[:8], "little") >> 11) * 2.0**-53


def sample_row(
    logits: Float32Array,
    row: SampleRow,
    view_of: Callable[[Float32Array], LogitsView] = NumpyView,
) -> int:
    """The token for one row of logits (V,), which are not changed. Raises: NonFiniteLogitsError."""
    params = row.params
    if not row.is_plain:
        logits = adjusted(logits, params, row.history, row.drafts)
        if row.allowed is not None:
            logits = masked(logits, row.allowed)
    best_id = int(logits.argmax())
    best = float(logits[best_id])
    if not np.isfinite(best):
        raise NonFiniteLogitsError(f"the best of {logits.size} logits is not finite")
    if params.is_greedy:
        return best_id
    view, point = view_of(logits), uniform(row.rng_seed, row.step)
    takes_all = (params.top_k or logits.size) >= logits.size and params.top_p >= 1
    with np.errstate(under="ignore", over="ignore"):  # a cold token's weight is 0
        if takes_all and not params.min_p:
            return view.draw(params.temperature, best, point)
        ids, weights = _candidates(logits, params, best, view)
    if params.min_p:
        keep = weights >= params.min_p  # the best has weight 1
        ids, weights = ids[keep], weights[keep]
    return int(ids[_index_of(weights, point)])


def sample_row_or_none(
    logits: Float32Array,
    row: SampleRow,
    view_of: Callable[[Float32Array], LogitsView] = NumpyView,
) -> int:
    """As ``sample_row``, but BROKEN_ROW for no token: one row must not end the others."""
    try:
        return sample_row(logits, row, view_of)
    except NonFiniteLogitsError:
        return BROKEN_ROW


def _index_of(weights: Weights, point: float) -> int:
    """Where the running sum exceeds ``point`` of the whole."""
    cumulative = weights.cumsum()
    total = cumulative[-1]
    index = int(cumulative.searchsorted(point * total, "right"))
    # The draw is below the total, but the product may round up to it; past the token that reaches
    # the total there may be others of weight 0, which are never drawn.
    return min(index, int(cumulative.searchsorted(total, "left")))


def row_logprobs(logits: Float32Array, wanted: LogprobsWanted) -> TokenLogprobs:
    """Log probabilities of one row of logits (V,)."""
    wide = logits.astype(np.float64)
    best = wide.max()
    log_total = best + np.log(np.exp(wide - best).sum())
    ids = _largest(logits, wanted.num_top) if wanted.num_top else ()
    return TokenLogprobs(
        token_id=wanted.token_id,
        logprob=float(wide[wanted.token_id] - log_total),
        top=tuple((int(token_id), float(wide[token_id] - log_total)) for token_id in ids),
    )


def _candidates(
    logits: Float32Array, params: Params, best: float, view: LogitsView
) -> tuple[Ids, Weights]:
    """Token ids that may be drawn and their weights; top-k first, then top-p of what is left."""
    limit = params.top_k or logits.size
    if limit >= logits.size and params.top_p >= 1:
        return np.arange(logits.size), _softmax_weights(logits, params.temperature, best)
    if params.top_p >= 1:
        ids = view.largest(limit)
        return ids, _softmax_weights(logits[ids], params.temperature, best)
    total = None
    if limit >= logits.size:
        total = view.total(params.temperature, best)
    num_looked_at = min(limit, _FIRST_CANDIDATES) if total is not None else limit
    ids = view.largest(num_looked_at)
    weights = _softmax_weights(logits[ids], params.temperature, best)
    wanted = params.top_p * (weights.sum() if total is None else total)
    if weights.sum() < wanted:
        ids = view.largest(limit)
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

"""How shall each next token be chosen, and when does the output end?"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite

from runtime.errors import InvalidSampling

MAX_TEMPERATURE = 2.0  # the chat completions API's own bound
MAX_STOP_STRINGS = 16
MAX_STOP_CHARS = 256
MAX_STOP_TOKEN_IDS = 64
MAX_PENALTY = 2.0  # of presence and frequency; the chat completions API's own bound
MIN_REPETITION_PENALTY, MAX_REPETITION_PENALTY = 0.01, 10.0
MAX_LOGIT_BIASES = 1024
MAX_LOGIT_BIAS = 100.0  # the chat completions API's own bound
MAX_TOP_LOGPROBS = 20  # the chat completions API's own bound
SEED_BITS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How to choose each next token, and when to stop.

    ``temperature`` 0 is greedy; ``top_k`` 0 is off; ``min_p`` drops tokens less probable than that
    share of the best one. ``logit_bias`` is added to the logits; ``frequency_penalty`` and
    ``presence_penalty`` are subtracted for tokens of the output, once for each time they occurred
    and once if they did; ``repetition_penalty`` divides the positive logits of tokens of prompt and
    output and multiplies the negative ones [Keskar et al. 2019, sec. 4.1].

    ``max_tokens`` is an upper bound: the context length may end the output earlier, also as
    ``"length"``. With a ``seed`` the same request gives the same text whatever else is in the
    batch. ``logprobs`` None gives none; else each token comes with its own and those of that many
    of the most probable tokens.

    Raises: InvalidSampling, whose ``param`` names the field.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict, repr=False)
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logprobs: int | None = None
    stop: tuple[str, ...] = field(default=(), repr=False)
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        half = 1 << (SEED_BITS - 1)
        _require(self.max_tokens >= 1, "max_tokens", "at least 1")
        _require(
            isfinite(self.temperature) and 0 <= self.temperature <= MAX_TEMPERATURE,
            "temperature",
            f"between 0 and {MAX_TEMPERATURE}",
        )
        _require(0 < self.top_p <= 1, "top_p", "above 0 and at most 1")
        _require(self.top_k >= 0, "top_k", "0 (off) or positive")
        _require(0 <= self.min_p <= 1, "min_p", "between 0 (off) and 1")
        _require(self.seed is None or -half <= self.seed < half, "seed", "a signed 64-bit integer")
        self._require_adjustments()
        _require(
            self.logprobs is None or 0 <= self.logprobs <= MAX_TOP_LOGPROBS,
            "logprobs",
            f"between 0 and {MAX_TOP_LOGPROBS}",
        )
        _require(len(self.stop) <= MAX_STOP_STRINGS, "stop", f"at most {MAX_STOP_STRINGS} strings")
        _require(
            all(0 < len(stop) <= MAX_STOP_CHARS for stop in self.stop),
            "stop",
            f"strings of 1 to {MAX_STOP_CHARS} characters",
        )
        _require(
            len(self.stop_token_ids) <= MAX_STOP_TOKEN_IDS
            and all(token_id >= 0 for token_id in self.stop_token_ids),
            "stop_token_ids",
            f"at most {MAX_STOP_TOKEN_IDS} token ids",
        )

    @property
    def has_penalties(self) -> bool:
        """Whether the choice depends on which tokens came before."""
        return bool(
            self.presence_penalty or self.frequency_penalty or self.repetition_penalty != 1.0
        )

    @property
    def is_greedy(self) -> bool:
        """Whether the best token is taken, without a draw."""
        return self.temperature == 0 or self.top_k == 1

    def _require_adjustments(self) -> None:
        for name in ("presence_penalty", "frequency_penalty"):
            value = getattr(self, name)
            _require(
                isfinite(value) and abs(value) <= MAX_PENALTY,
                name,
                f"between -{MAX_PENALTY} and {MAX_PENALTY}",
            )
        _require(
            MIN_REPETITION_PENALTY <= self.repetition_penalty <= MAX_REPETITION_PENALTY,
            "repetition_penalty",
            f"between {MIN_REPETITION_PENALTY} and {MAX_REPETITION_PENALTY}",
        )
        _require(
            len(self.logit_bias) <= MAX_LOGIT_BIASES
            and all(token_id >= 0 for token_id in self.logit_bias)
            and all(abs(bias) <= MAX_LOGIT_BIAS for bias in self.logit_bias.values()),
            "logit_bias",
            f"at most {MAX_LOGIT_BIASES} token ids with a bias of -{MAX_LOGIT_BIAS} to "
            f"{MAX_LOGIT_BIAS}",
        )


def _require(is_valid: bool, param: str, want: str) -> None:
    if not is_valid:
        raise InvalidSampling(f"{param} must be {want}", param=param)

"""What does the Engine need from the parts it drives?"""

from collections.abc import Sequence, Set
from typing import Protocol, TypeVar

from runtime.output import Detokenizer
from runtime.plan import StepPlan
from runtime.sampler import LogprobsWanted, SampleRow, TokenLogprobs

LogitsT = TypeVar("LogitsT")
LogitsT_co = TypeVar("LogitsT_co", covariant=True)
LogitsT_contra = TypeVar("LogitsT_contra", contravariant=True)


class Runner(Protocol[LogitsT_co]):
    """Computes plans over a KV cache of its own.

    One whose logits are the same for a token, bit by bit, in any plan that computes it and asks
    for that (``StepPlan.batch_invariant``) has an attribute ``is_batch_invariant`` that is true.
    One that computes tokens of other sequences otherwise where there are many has ``has_bulk``.
    """

    @property
    def vocab_size(self) -> int: ...

    @property
    def num_blocks(self) -> int: ...

    @property
    def block_size(self) -> int: ...

    @property
    def max_context_tokens(self) -> int: ...

    def run(self, plan: StepPlan) -> LogitsT_co:
        """Logits (S, V) of the plan's ``logits_rows``; keys and values go to its slots."""


class TokenSampler(Protocol[LogitsT_contra]):
    """Chooses one token per row of logits; ``runtime.sampler.sample_row`` says which."""

    def sample(self, logits: LogitsT_contra, rows: Sequence[SampleRow]) -> list[int]:
        """BROKEN_ROW for a row that has no token: its sequence fails, no other."""

    def logprobs(
        self, logits: LogitsT_contra, wanted: Sequence[LogprobsWanted]
    ) -> list[TokenLogprobs]:
        """Asked of some rows after ``sample``; the logits are still the same."""


class TextTokenizer(Protocol):
    """The part of a tokenizer that output needs."""

    @property
    def eos_token_ids(self) -> Set[int]: ...

    def detokenizer(self) -> Detokenizer: ...

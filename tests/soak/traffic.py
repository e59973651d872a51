"""What do the requests of a soak look like?  Seeded: short, of random sizes, some with a fault."""

import random
from dataclasses import dataclass

from runtime import GenerationRequest, SamplingParams

_NUM_FAMILIES = 12
_MAX_PREFIX_TOKENS = 70
_MAX_TAIL_TOKENS = 24
_MAX_OUTPUT_TOKENS = 16
_STOPS = ("e", "the", " a", "\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Requests over a vocabulary; families of them share a prefix, some of a family a salt."""

    rng: random.Random
    vocab_size: int
    first_token_id: int
    prefixes: tuple[tuple[int, ...], ...]

    def request(self, number: int, *, arrival_ns: int) -> GenerationRequest:
        rng = self.rng
        prefix = rng.choice(self.prefixes) if rng.random() < 0.7 else ()
        tail = self._tokens(rng.randint(1, _MAX_TAIL_TOKENS))
        return GenerationRequest(
            request_id=f"soak-{number}",
            prompt_token_ids=(*prefix[: rng.randint(0, len(prefix))], *tail),
            sampling=self._sampling(),
            arrival_ns=arrival_ns,
            cache_salt=rng.choice((b"", b"", b"other")),
        )

    def _sampling(self) -> SamplingParams:
        rng = self.rng
        return SamplingParams(
            max_tokens=rng.randint(1, _MAX_OUTPUT_TOKENS),
            temperature=rng.choice((0.0, 0.0, 0.7, 1.3)),
            top_p=rng.choice((1.0, 0.9)),
            top_k=rng.choice((0, 0, 5)),
            seed=rng.choice((None, rng.randint(0, 99))),
            stop=tuple(rng.sample(_STOPS, rng.choice((0, 0, 1, 2)))),
            ignore_eos=rng.random() < 0.5,
        )

    def _tokens(self, count: int) -> tuple[int, ...]:
        return tuple(self.rng.randrange(self.first_token_id, self.vocab_size) for _ in range(count))


def make_traffic(seed: int, *, vocab_size: int, first_token_id: int) -> Traffic:
    """Token ids from ``first_token_id`` on are plain text."""
    rng = random.Random(seed)
    prefixes = tuple(
        tuple(
            rng.randrange(first_token_id, vocab_size)
            for _ in range(rng.randint(1, _MAX_PREFIX_TOKENS))
        )
        for _ in range(_NUM_FAMILIES)
    )
    return Traffic(rng=rng, vocab_size=vocab_size, first_token_id=first_token_id, prefixes=prefixes)

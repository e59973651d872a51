"""What does each request ask?  Seeded prompts of a profile's sizes, some with a shared prefix."""

import random
from dataclasses import dataclass

from loadtest.load_profile import Workload

# Plain nouns and verbs: a prompt's text never matters here, only its length and its prefix.
_WORDS = (
    "harbour",
    "lantern",
    "copper",
    "meadow",
    "signal",
    "orbit",
    "ladder",
    "window",
    "granite",
    "engine",
    "compass",
    "willow",
    "carry",
    "measure",
    "follow",
    "gather",
    "weigh",
    "repair",
    "describe",
    "compare",
    "remember",
    "travel",
    "listen",
    "answer",
    "quiet",
    "narrow",
    "bright",
    "distant",
    "early",
    "heavy",
    "simple",
    "careful",
    "northern",
    "open",
    "slow",
    "eleven",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequest:
    """One request before it is sent; ``intended_s`` counts from the start of the run."""

    seq: int
    intended_s: float
    is_warmup: bool
    system: str
    prompt: str
    max_tokens: int


def plan_requests(
    workload: Workload, offsets_s: list[float], *, warmup_s: float, rng: random.Random
) -> list[PlannedRequest]:
    """One planned request for each arrival, in order."""
    prefixes = [_words(workload.shared_prefix_words, rng) for _ in range(workload.shared_prefixes)]
    return [
        PlannedRequest(
            seq=seq,
            intended_s=offset_s,
            is_warmup=offset_s < warmup_s,
            system=rng.choice(prefixes) if prefixes else "",
            prompt=_words(rng.randint(workload.prompt_words_min, workload.prompt_words_max), rng),
            max_tokens=rng.randint(workload.output_tokens_min, workload.output_tokens_max),
        )
        for seq, offset_s in enumerate(offsets_s)
    ]


def chat_body(request: PlannedRequest, *, model: str) -> dict[str, object]:
    """The OpenAI chat request; ``ignore_eos`` makes the answer exactly as long as planned."""
    messages = [{"role": "user", "content": request.prompt}]
    if request.system:
        messages.insert(0, {"role": "system", "content": request.system})
    return {
        "model": model,
        "messages": messages,
        "max_tokens": request.max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def _words(count: int, rng: random.Random) -> str:
    return " ".join(rng.choice(_WORDS) for _ in range(count))

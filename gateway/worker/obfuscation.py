"""How does an event not tell how long its text is?  It is filled up to a multiple of some bytes.

OpenAI's `include_obfuscation`: a member `obfuscation` of random characters, so that compression on
the way does not undo it.
"""

import base64
from collections.abc import Callable
from typing import Final

BUCKET_BYTES: Final = 32  # most deltas are shorter: they all look alike

Filler = Callable[[int], str]
"""Bytes that a delta takes -> what fills it up."""


def random_filler(rng: Callable[[int], bytes]) -> Filler:
    def fill(num_bytes: int) -> str:
        num_chars = -num_bytes % BUCKET_BYTES
        return base64.urlsafe_b64encode(rng(BUCKET_BYTES)).decode("ascii")[:num_chars]

    return fill

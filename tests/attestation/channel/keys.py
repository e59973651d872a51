"""Fixed keys and randomness for the channel's tests."""

import hashlib

from attestation.channel import ServerKey, ServerKeys
from attestation.channel.hpke import PrivateKey, Rng


def fixed_rng(seed: str) -> Rng:
    """The same bytes for the same sequence of calls."""
    counter = 0

    def draw(num_bytes: int) -> bytes:
        nonlocal counter
        counter += 1
        return hashlib.shake_256(f"{seed}/{counter}".encode()).digest(num_bytes)

    return draw


SERVER_KEY = ServerKey.from_private_key(7, PrivateKey.generate(rng=fixed_rng("server")))
SERVER_KEYS: ServerKeys = {7: SERVER_KEY}

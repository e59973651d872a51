"""HKDF with SHA-256, plain and labelled.  [RFC 5869; RFC 9180 sec. 4]"""

import hmac

HASH_BYTES = 32
MAX_EXPAND_BYTES = 255 * HASH_BYTES  # RFC 5869 sec. 2.3

_VERSION_LABEL = b"HPKE-v1"


def extract(salt: bytes, ikm: bytes) -> bytes:
    """The 32-byte pseudorandom key."""
    return hmac.digest(salt, ikm, "sha256")


def expand(prk: bytes, info: bytes, length_bytes: int) -> bytes:
    """``length_bytes`` of key material.

    Raises: ValueError when ``length_bytes`` is outside 0..8160.
    """
    if not 0 <= length_bytes <= MAX_EXPAND_BYTES:
        raise ValueError(f"HKDF length is 0..{MAX_EXPAND_BYTES}, got {length_bytes}")
    if length_bytes <= HASH_BYTES:
        return hmac.digest(prk, info + b"\x01", "sha256")[:length_bytes]
    block, blocks = b"", []
    for counter in range(1, -(-length_bytes // HASH_BYTES) + 1):
        block = hmac.digest(prk, block + info + counter.to_bytes(1, "big"), "sha256")
        blocks.append(block)
    return b"".join(blocks)[:length_bytes]


def labeled_extract(suite_id: bytes, salt: bytes, label: bytes, ikm: bytes) -> bytes:
    """LabeledExtract of RFC 9180."""
    return extract(salt, _VERSION_LABEL + suite_id + label + ikm)


def labeled_expand(
    suite_id: bytes, prk: bytes, label: bytes, info: bytes, length_bytes: int
) -> bytes:
    """LabeledExpand of RFC 9180.

    Raises: ValueError when ``length_bytes`` is outside 0..8160.
    """
    if not 0 <= length_bytes <= MAX_EXPAND_BYTES:
        raise ValueError(f"HKDF length is 0..{MAX_EXPAND_BYTES}, got {length_bytes}")
    labeled_info = length_bytes.to_bytes(2, "big") + _VERSION_LABEL + suite_id + label + info
    return expand(prk, labeled_info, length_bytes)

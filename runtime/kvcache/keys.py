"""Under which key may a block of keys and values be found again?

A block's contents depend on the weights and on every token before it, so its key is a SHA-256
chain over both. The first link also takes a salt: without it no key can be found, which is what
keeps one tenant's prompts from showing in another's latency. Fields are tagged and length-prefixed,
so no two different inputs hash the same bytes.
"""

import struct
from collections.abc import Sequence
from hashlib import sha256
from typing import NewType

BlockKey = NewType("BlockKey", bytes)  # 32 bytes

_ROOT_TAG = b"starshade/kv/genesis/v1"
_BLOCK_TAG = b"starshade/kv/block/v1"
_IN_BULK = b"in bulk"


def root_key(*, model_sha256: str, salt: bytes, in_bulk: bool = False) -> BlockKey:
    """The parent of a sequence's first block.

    ``in_bulk``: what the sequence generates may be computed otherwise in company, so that no other
    than such a sequence may go on from it.
    """
    fields = (_ROOT_TAG, model_sha256.encode(), salt)
    return _digest(*fields, _IN_BULK) if in_bulk else _digest(*fields)


def block_key(parent: BlockKey, token_ids: Sequence[int]) -> BlockKey:
    """The key of the block that holds ``token_ids`` after everything ``parent`` stands for."""
    return _digest(_BLOCK_TAG, parent, struct.pack(f"<{len(token_ids)}I", *token_ids))


def _digest(*fields: bytes) -> BlockKey:
    digest = sha256()
    for field in fields:
        digest.update(struct.pack("<Q", len(field)))
        digest.update(field)
    return BlockKey(digest.digest())

"""Which tokens followed the last time this sequence read like this?  Prompt lookup as a Proposer.

A draft is what followed the latest earlier occurrence of the sequence's last three tokens, or two,
or one, in its own prompt or output [Saxena 2023, prompt lookup decoding]. A new token costs a
constant time, a proposal three look-ups, and memory is bounded by forgetting the oldest positions.
Sequences that are never asked about cost nothing.
"""

from collections.abc import Sequence

from runtime.speculation import DraftWanted

MAX_INDEXED_TOKENS = 4096  # the latest of a sequence; about 1 MB
_TOKEN_BITS = 21  # vocabularies are smaller than 2^21; longer ids would only collide
_MASKS = tuple((1 << length * _TOKEN_BITS) - 1 for length in (3, 2, 1))  # the longest first


class _Index:
    """Where each n-gram of one sequence's latest tokens was last followed by something."""

    __slots__ = ("_first", "_next_at", "_stop")

    def __init__(self) -> None:
        self._next_at: tuple[dict[int, int], ...] = tuple({} for _ in _MASKS)
        self._first = self._stop = 1  # positions whose preceding n-grams are in

    def extend(self, token_ids: Sequence[int]) -> None:
        """Take in the n-grams before each position that has a token."""
        oldest = max(1, len(token_ids) - MAX_INDEXED_TOKENS)
        self._forget(token_ids, min(oldest, self._stop))
        tables = tuple(zip(_MASKS, self._next_at, strict=True))
        first = max(oldest, self._stop)
        key = _key(token_ids, first - 1)
        for position in range(first, len(token_ids)):
            key = (key << _TOKEN_BITS | token_ids[position - 1]) & _MASKS[0]
            for mask, next_at in tables:
                next_at[key & mask] = position
        self._first, self._stop = oldest, len(token_ids)

    def find(self, token_ids: Sequence[int]) -> int | None:
        """Where the sequence went on when it last ended as it ends now."""
        key = _key(token_ids, len(token_ids))
        for mask, next_at in zip(_MASKS, self._next_at, strict=True):
            if (position := next_at.get(key & mask)) is not None:
                return position
        return None

    def _forget(self, token_ids: Sequence[int], stop: int) -> None:
        for position in range(self._first, stop):
            key = _key(token_ids, position)
            for mask, next_at in zip(_MASKS, self._next_at, strict=True):
                if next_at.get(key & mask) == position:
                    del next_at[key & mask]


class NgramProposer:
    """``runtime.speculation.Proposer`` that needs no model."""

    def __init__(self) -> None:
        self._indexes: dict[str, _Index] = {}

    def propose(self, wanted: Sequence[DraftWanted]) -> list[tuple[int, ...]]:
        return [self._propose(one) for one in wanted]

    def forget(self, request_id: str) -> None:
        self._indexes.pop(request_id, None)

    def _propose(self, wanted: DraftWanted) -> tuple[int, ...]:
        token_ids = wanted.token_ids
        index = self._indexes.setdefault(wanted.request_id, _Index())
        index.extend(token_ids)
        start = index.find(token_ids)
        if start is None:
            return ()
        period = len(token_ids) - start  # past the end the draft repeats itself
        return tuple(token_ids[start + offset % period] for offset in range(wanted.max_drafts))


def _key(token_ids: Sequence[int], stop: int) -> int:
    """The three tokens before ``stop`` in one number, zeros where there are fewer."""
    key = 0
    for position in range(max(0, stop - 3), stop):
        key = key << _TOKEN_BITS | token_ids[position]
    return key

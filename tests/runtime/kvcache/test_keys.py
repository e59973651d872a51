"""Do block keys tell apart everything that makes block contents differ?"""

from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from runtime.kvcache.keys import BlockKey, block_key, root_key

MODEL = "ab" * 32


def chain(token_ids: list[int], size: int, *, model: str = MODEL, salt: bytes = b"") -> BlockKey:
    key = root_key(model_sha256=model, salt=salt)
    for start in range(0, len(token_ids), size):
        key = block_key(key, token_ids[start : start + size])
    return key


TOKENS = st.lists(st.integers(0, 2**32 - 1), max_size=8)


@given(first=TOKENS, second=TOKENS, sizes=st.tuples(st.integers(1, 4), st.integers(1, 4)))
def test_equal_only_for_the_same_tokens_cut_the_same_way(
    first: list[int], second: list[int], sizes: tuple[int, int]
) -> None:
    def cut(token_ids: list[int], size: int) -> list[list[int]]:
        return [token_ids[start : start + size] for start in range(0, len(token_ids), size)]

    same = cut(first, sizes[0]) == cut(second, sizes[1])
    assert (chain(first, sizes[0]) == chain(second, sizes[1])) == same


@given(
    first=st.tuples(st.text("ab", max_size=3), st.binary(max_size=3)),
    second=st.tuples(st.text("ab", max_size=3), st.binary(max_size=3)),
)
def test_model_and_salt_do_not_run_into_each_other(
    first: tuple[str, bytes], second: tuple[str, bytes]
) -> None:
    keys = [root_key(model_sha256=model, salt=salt) for model, salt in (first, second)]
    assert (keys[0] == keys[1]) == (first == second)


def test_what_was_generated_in_bulk_has_a_root_of_its_own() -> None:
    roots = {
        root_key(model_sha256=MODEL, salt=salt, in_bulk=in_bulk)
        for salt in (b"", b"in bulk")
        for in_bulk in (False, True)
    }
    assert len(roots) == 4


def test_the_layout_is_pinned() -> None:
    def field(data: bytes) -> bytes:
        return len(data).to_bytes(8, "little") + data

    root = sha256(field(b"starshade/kv/genesis/v1") + field(MODEL.encode()) + field(b"s")).digest()
    tokens = (1).to_bytes(4, "little") + (258).to_bytes(4, "little")
    want = sha256(field(b"starshade/kv/block/v1") + field(root) + field(tokens)).digest()
    assert chain([1, 258], 2, salt=b"s") == want

"""Does a stop string end the text wherever the tokens were cut?"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.output import OutputText
from runtime.sampling import SamplingParams
from runtime.sequence import FinishReason
from runtime.stops import StopChecker
from tests.runtime.harness import first_stop
from tests.support.fake_runner import EOS_TOKEN_ID, PIECES, FakeDetokenizer

# Two letters, so that stop strings are met, and overlap with themselves and each other.
SMALL_TEXTS = st.text(alphabet="ab", max_size=3)


@given(
    pieces=st.lists(SMALL_TEXTS, max_size=12),
    stops=st.lists(st.text(alphabet="ab", min_size=3, max_size=6), max_size=3),
)
def test_output_equals_a_search_of_the_whole_text(pieces: list[str], stops: list[str]) -> None:
    checker = StopChecker(stops)
    emitted = ""
    for piece in pieces:
        emitted += checker.push(piece)
        cut = first_stop(emitted, tuple(stops))
        assert cut is None, "emitted a stop string"
    was_stopped = checker.is_stopped
    emitted += checker.flush()
    whole = "".join(pieces)
    cut = first_stop(whole, tuple(stops))
    assert was_stopped == (cut is not None)
    assert emitted == (whole if cut is None else whole[:cut])


@given(pieces=st.lists(SMALL_TEXTS, max_size=12), stop=st.text("ab", min_size=1, max_size=5))
def test_nothing_is_held_back_longer_than_needed(pieces: list[str], stop: str) -> None:
    checker = StopChecker([stop])
    whole, emitted = "", ""
    for piece in pieces:
        whole += piece
        emitted += checker.push(piece)
        if checker.is_stopped:
            return
        held = whole[len(emitted) :]
        assert stop.startswith(held)
        assert len(held) < len(stop)


def test_a_stop_string_across_pieces() -> None:
    checker = StopChecker(["</end>"])
    assert [checker.push(piece) for piece in ("one <", "/e", "x </", "en", "d> two")] == [
        "one ",
        "",
        "</ex ",
        "",
        "",
    ]
    assert checker.is_stopped
    assert checker.push("three") == ""
    assert checker.flush() == ""


def test_a_stop_string_that_begins_with_its_own_end() -> None:
    checker = StopChecker(["aab"])
    assert [checker.push(piece) for piece in ("xa", "a", "a", "b")] == ["x", "", "a", ""]
    assert checker.is_stopped


def test_the_stop_that_is_complete_first_wins() -> None:
    checker = StopChecker(["abcd", "bc"])
    assert checker.push("abcd") == "a"


def test_the_longest_of_those_complete_together_wins() -> None:
    checker = StopChecker(["bc", "abc"])
    assert checker.push("xabc") == "x"


def output(*, stop: tuple[str, ...] = (), ignore_eos: bool = False) -> OutputText:
    params = SamplingParams(
        max_tokens=9, stop=stop, stop_token_ids=frozenset({11}), ignore_eos=ignore_eos
    )
    return OutputText(params, detokenizer=FakeDetokenizer(), eos_token_ids={EOS_TOKEN_ID})


def push(text: OutputText, *token_ids: int, room: int = 9) -> tuple[str, FinishReason | None]:
    """As the engine does: the ids decide first, then the text."""
    num_tokens, reason = text.end_of(token_ids, room=room)
    written = text.write(token_ids[:num_tokens], reason)
    assert written.num_tokens == num_tokens or written.reason == "stop"
    return written.text, written.reason


def test_what_may_become_a_stop_is_sent_when_the_output_ends() -> None:
    for ending_token_id in (EOS_TOKEN_ID, 11):
        text = output(stop=("abcx",))
        assert push(text, PIECES.index("abc")) == ("", None)
        assert push(text, ending_token_id) == ("abc", "stop")


def test_length_ends_the_output_unless_a_stop_string_does_so_first() -> None:
    assert push(output(stop=("bx",)), PIECES.index("ab"), room=1) == ("ab", "length")
    assert push(output(stop=("b",)), PIECES.index("ab"), room=1) == ("a", "stop")
    assert push(output(), PIECES.index("ab"), EOS_TOKEN_ID, room=2) == ("ab", "stop")


def test_eos_is_an_ordinary_token_when_ignored() -> None:
    assert push(output(ignore_eos=True), EOS_TOKEN_ID) == ("", None)
    assert push(output(ignore_eos=True), 11) == ("", "stop")


@settings(deadline=None)
@given(
    st.lists(st.integers(0, len(PIECES) - 1), min_size=1, max_size=12),
    st.lists(st.integers(1, 4), min_size=12, max_size=12),
    st.integers(1, 12),
    st.sampled_from([(), ("ab",), ("abc", "ca"), ("x",)]),
)
def test_several_tokens_at_once_are_as_one_at_a_time(
    token_ids: list[int], sizes: list[int], max_tokens: int, stop: tuple[str, ...]
) -> None:
    def run(sizes: list[int]) -> tuple[int, str, FinishReason | None]:
        text, shown, used, rest = output(stop=stop), "", 0, token_ids
        for size in sizes:
            num_tokens, reason = text.end_of(rest[:size], room=max_tokens - used)
            written = text.write(rest[:num_tokens], reason)
            used, shown = used + written.num_tokens, shown + written.text
            rest = rest[size:]
            if written.reason is not None or not rest:
                return used, shown, written.reason
        raise AssertionError("not all tokens were offered")

    assert run(sizes) == run([1] * 12)


class UnfinishedCharacter(FakeDetokenizer):
    def flush(self) -> str:
        return "\ufffd"


@pytest.mark.parametrize("stop", ["a\ufffd", "never"])
def test_the_last_bytes_are_searched_too(stop: str) -> None:
    params = SamplingParams(max_tokens=1, stop=(stop,))
    text = OutputText(params, detokenizer=UnfinishedCharacter(), eos_token_ids=set())
    want = ("a\ufffd", "length") if stop == "never" else ("", "stop")
    assert push(text, PIECES.index("a"), room=1) == want


def test_without_stop_strings_the_last_bytes_are_shown() -> None:
    params = SamplingParams(max_tokens=1)
    text = OutputText(params, detokenizer=UnfinishedCharacter(), eos_token_ids=set())
    assert push(text, PIECES.index("a"), room=1) == ("a\ufffd", "length")

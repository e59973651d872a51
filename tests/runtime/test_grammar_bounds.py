"""Is what an expression writes out to counted as its reader would, and never as too little?"""

import pytest

from runtime.grammar_bounds import MAX_WRITTEN, written_chars


@pytest.mark.parametrize(
    ("expression", "num_chars"),
    [
        ("", 0),
        ("abc", 3),
        ("a{3}", 3),
        ("a{3,9}b", 4),
        ("a{3,}", 3),
        ("a{0,9000}", 1),
        ("(ab){4}|c{6}", 8),
        ("(?:ab|(?P<x>cde)){4}", 12),
        ("((a{5}){6}){7}", 210),
        ("a{5}{6}", 30),
        (r"[^\]{9}]{2}", 2),
        ("[]{9}]{2}", 2),
        ("[a[b{9}]]{2}", 2),
        (r"\{9}\p{Greek}{3}\x{41}", 7),
        (r"\[a{3}", 4),
        ("(?i)a{3}", 3),
        ("a{x}", 4),
        ("a{00000000000012}", 12),
        ("(?x)a{00000000000012}", 252),
    ],
)
def test_the_length_of_the_longest_stretch(expression: str, num_chars: int) -> None:
    assert written_chars(expression) == num_chars


@pytest.mark.parametrize(
    "expression",
    [
        "(?x) # [\n(a{1000}){1000}",
        "[(a{1000}){1000}",
        "a{" + "9" * 5000 + "}",
        "a{" + "0" * 5000 + "10001}",
        "(" * 20_000 + "(a{1000}){1000}" + ")" * 20_000,
    ],
)
def test_what_is_hard_to_read_counts_as_too_much(expression: str) -> None:
    assert written_chars(expression) > MAX_WRITTEN

"""The bounds of a RIM from both sides, under the test root."""

from dataclasses import replace
from datetime import timedelta

import pytest

from attestation.errors import AttestationError
from attestation.nvidia.rim import VerifiedRim, verify_rim
from tests.vectors.nvidia_refs.pki import AT, ISSUES, anchors, sign
from tests.vectors.nvidia_refs.rim_documents import chained, document, resigned, resource


def _verify(text: str, **options: bool) -> VerifiedRim:
    return verify_rim(text.encode(), anchors=anchors(), at=AT, **options)


def _problem(text: str, **options: bool) -> str | None:
    try:
        _verify(text, **options)
    except AttestationError as err:
        return f"{err.code}: {err}"
    return None


def _entry(*, num_hashes: int = 1, size: int = 48) -> str:
    return resource(0, hashes=("11" * size,) * num_hashes).replace('size="48"', f'size="{size}"')


@pytest.mark.parametrize(("num_hashes", "is_good"), [(1, True), (16, True), (17, False)])
def test_the_most_alternatives(num_hashes: int, is_good: bool) -> None:
    text = sign(document(resources=(_entry(num_hashes=num_hashes),)))
    if is_good:
        assert len(_verify(text).entries[0].alternatives) == num_hashes
    else:
        assert "alternatives is not a number of 1..16" in str(_problem(text))


@pytest.mark.parametrize(("size", "is_good"), [(0, False), (1, True), (64, True), (65, False)])
def test_the_sizes_of_a_value(size: int, is_good: bool) -> None:
    text = sign(document(resources=(_entry(size=size),)))
    if is_good:
        assert _verify(text).entries[0].alternatives == (b"\x11" * size,)
    else:
        assert "size is not a number of 1..64" in str(_problem(text))


@pytest.mark.parametrize(("count", "is_good"), [(0, False), (1, True), (64, True), (65, False)])
def test_the_number_of_entries(count: int, is_good: bool) -> None:
    text = sign(document(resources=tuple(resource(i) for i in range(count))))
    if is_good:
        assert len(_verify(text).entries) == count
    else:
        assert "not 1 to 64 entries" in str(_problem(text))


def test_text_between_the_entries_is_refused() -> None:
    text = resigned("    </ns0:Payload>", "x</ns0:Payload>")
    assert "not 1 to 64 entries" in str(_problem(text))


@pytest.mark.parametrize("name", ["corpus", "patch", "supplemental"])
def test_a_part_of_a_reference_is_refused(name: str) -> None:
    assert "only a part" in str(_problem(resigned(f'{name}="false"', f'{name}="true"')))
    assert _problem(resigned(f'{name}="false" ', "")) is None


@pytest.mark.parametrize(
    ("old", "problem"),
    [
        (' product="GH100"/>', "names no product"),
        ('colloquialVersion="550.90.07" ', "of no known kind"),
    ],
)
def test_what_a_rim_must_name(old: str, problem: str) -> None:
    assert problem in str(_problem(resigned(old, "/>" if old.endswith("/>") else "")))


@pytest.mark.parametrize("name", ["size", "index", "alternatives"])
def test_a_number_that_is_left_out(name: str) -> None:
    value = {"size": "48", "index": "0", "alternatives": "1"}[name]
    text = sign(document(resources=(resource(0).replace(f' {name}="{value}"', ""),)))
    problem = _problem(text)
    assert problem is not None
    assert problem.startswith("format")


def test_a_rim_may_be_signed_after_the_time_of_judging_only_where_that_is_said() -> None:
    """Every certificate then counts from the youngest one's start on, and none may have ended."""
    later = AT + timedelta(days=40)
    text = chained(signer=replace(ISSUES["signer"], not_before=later))
    assert str(_problem(text)).startswith("certificate_time")
    assert _problem(text, may_be_signed_later=True) is None

"""The CBOR reader takes the one form of each value and nothing that parsers read differently."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestation.errors import MalformedEvidence
from attestation.nitro import cbor
from attestation.nitro.cbor import MAX_BYTES, MAX_ITEMS
from tests.attestation.nitro.samples import cbor as encode

_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=-(2**64), max_value=2**64 - 1),
    st.binary(max_size=300),
    st.text(max_size=100),
)
_KEYS = st.one_of(st.integers(min_value=-5, max_value=2**64 - 1), st.text(max_size=10))
_VALUES = st.one_of(
    _SCALARS,
    st.lists(_SCALARS, max_size=30),
    st.dictionaries(_KEYS, st.one_of(_SCALARS, st.lists(_SCALARS, max_size=5)), max_size=10),
)


def _plain(value: Any) -> Any:
    """Tuples as the lists that they were."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


@given(_VALUES)
def test_what_is_written_reads_back(value: Any) -> None:
    assert _plain(cbor.decode(encode(value), what="value")) == value


@given(st.binary(max_size=100_000), st.text(max_size=50))
def test_encoders_agree_with_an_independent_one(data: bytes, text: str) -> None:
    items = (cbor.encode_text(text), cbor.encode_bytes(data))

    assert cbor.encode_array(items) == encode([text, data])


@given(st.binary(max_size=64))
def test_any_bytes_are_a_value_or_our_error(data: bytes) -> None:
    try:
        value = cbor.decode(data, what="value", are_maps_indefinite=True)
    except MalformedEvidence:
        return
    assert b"\xbf" in data or encode(_plain(value)) == data  # one form only, but for such a map


@pytest.mark.parametrize(
    "text",
    [
        "",
        "18",  # cut in the argument
        "1817",  # 23 in two bytes
        "190017",
        "1a0000ffff",
        "1b00000000ffffffff",
        "1c",  # reserved
        "1f",  # indefinite integer
        "3817",  # -24 in two bytes
        "42ff",  # cut string
        "5f4100ff",  # chunked bytes
        "7f6161ff",  # chunked text
        "61ff",  # not UTF-8
        "9f01ff",  # indefinite array
        "bf0102",  # no break
        "bf01ff",  # break for a value
        "a10101a1",
        "a2010201ff",
        "a201020103",  # key twice
        "a1f500",  # boolean key
        "a1f600",  # null key
        "a1410000",  # bytes key
        "a1800000",  # array key
        "c000",  # tag
        "d9d9f700",  # tag 55799
        "f7",  # undefined
        "f0",
        "f8ff",
        "f90000",
        "fa00000000",
        "fb0000000000000000",
        "ff",  # break alone
        "81818180",  # deeper than allowed
        "9b" + "ff" * 8,
        "bb" + "ff" * 8,
        "5b" + "ff" * 8,
        "9a00000101" + "00" * 257,  # more items than allowed
    ],
)
def test_other_forms_are_refused(text: str) -> None:
    with pytest.raises(MalformedEvidence):
        cbor.decode(bytes.fromhex(text), what="value", are_maps_indefinite=True)


def test_maps_of_indefinite_length_are_opt_in() -> None:
    data = bytes.fromhex("bf01a10203ff")

    assert cbor.decode(data, what="value", are_maps_indefinite=True) == {1: {2: 3}}
    with pytest.raises(MalformedEvidence):
        cbor.decode(data, what="value")


def test_limits() -> None:
    many = b"\xbf" + b"".join(encode(index) + b"\0" for index in range(MAX_ITEMS)) + b"\xff"

    with pytest.raises(MalformedEvidence, match="items"):
        cbor.decode(many, what="value", are_maps_indefinite=True)
    with pytest.raises(MalformedEvidence, match="items"):  # before the first of them is read
        cbor.decode(bytes.fromhex("9b" + "ff" * 8), what="value")
    assert cbor.decode(encode([0] * (MAX_ITEMS - 1)), what="value") == (0,) * (MAX_ITEMS - 1)
    with pytest.raises(MalformedEvidence):
        cbor.decode(encode([0] * MAX_ITEMS), what="value")
    with pytest.raises(MalformedEvidence):
        cbor.decode(encode(bytes(MAX_BYTES)), what="value")


def test_bytes_after_the_end() -> None:
    with pytest.raises(MalformedEvidence) as caught:
        cbor.decode(b"\0\0", what="value")

    assert caught.value.code == "trailing_bytes"

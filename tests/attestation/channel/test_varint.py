"""QUIC varints: the RFC's examples and every boundary."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attestation.channel.varint import MAX_VARINT, encode_varint, parse_varint, varint_length
from tests.support.resources import vectors_dir


def test_published_varints() -> None:
    vectors = json.loads((vectors_dir() / "protocol" / "quic_varint.json").read_text())["vectors"]
    for vector in vectors:
        data = bytes.fromhex(vector["hex"])
        assert parse_varint(data) == (int(vector["value"]), len(data))


@settings(deadline=None)
@given(st.integers(0, MAX_VARINT))
def test_parse_undoes_encode(value: int) -> None:
    data = encode_varint(value)
    assert parse_varint(b"\xff" + data + b"\xff", 1) == (value, 1 + len(data))
    assert varint_length(data[0]) == len(data)
    for length in range(len(data)):
        assert parse_varint(data[:length]) is None


@pytest.mark.parametrize(
    ("value", "length"),
    [(0x3F, 1), (0x40, 2), (0x3FFF, 2), (0x4000, 4), (0x3FFFFFFF, 4), (0x40000000, 8)],
)
def test_the_shortest_form_is_written(value: int, length: int) -> None:
    assert len(encode_varint(value)) == length


@pytest.mark.parametrize("value", [-1, MAX_VARINT + 1])
def test_out_of_range(value: int) -> None:
    with pytest.raises(ValueError, match="varint"):
        encode_varint(value)

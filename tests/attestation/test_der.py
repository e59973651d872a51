"""The DER reader takes the one encoding DER allows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestation import der
from attestation.errors import AttestationError


@given(st.binary(max_size=1000))
def test_values_of_any_length_are_read_back(value: bytes) -> None:
    length = len(value)
    if length < 0x80:
        header = bytes([der.OCTET_STRING, length])
    elif length < 0x100:
        header = bytes([der.OCTET_STRING, 0x81, length])
    else:
        header = bytes([der.OCTET_STRING, 0x82]) + length.to_bytes(2, "big")

    assert der.read_one(header + value, der.OCTET_STRING) == value


@pytest.mark.parametrize(
    "data",
    [
        "04",
        "0480",  # indefinite
        "048101ff",  # not minimal
        "0482007fff",
        "04830000010a",
        "0402ff",  # runs past the end
        "1f0100",  # high tag number
        "0400" * 65,
        "04000400",  # two elements where one is asked for
        "0200",  # another tag
    ],
)
def test_other_encodings_are_refused(data: str) -> None:
    with pytest.raises(AttestationError) as caught:
        der.read_one(bytes.fromhex(data), der.OCTET_STRING)

    assert caught.value.code == "format"


@pytest.mark.parametrize("value", ["", "80", "007f", "0100"])
def test_integers_are_minimal_and_bounded(value: str) -> None:
    with pytest.raises(AttestationError):
        der.unsigned(bytes.fromhex(value), maximum=0xFF)


def test_an_oid_occurs_once() -> None:
    pair = bytes.fromhex("30050601010400")

    assert len(der.pairs(pair)) == 1
    with pytest.raises(AttestationError, match="twice"):
        der.pairs(pair + pair)

"""Messages of another shape than COSE_Sign1's are refused before anything is verified."""

from typing import Any

import pytest

from attestation.errors import AttestationError
from attestation.nitro.cose import parse_sign1
from tests.attestation.nitro.samples import cbor

_PROTECTED = cbor({1: -35})
_GOOD: tuple[Any, ...] = (_PROTECTED, {}, b"payload", bytes(96))


def _code(*message: Any) -> str | None:
    try:
        parse_sign1(cbor(list(message)), what="document")
    except AttestationError as err:
        return err.code
    return None


@pytest.mark.parametrize(
    ("index", "value"),
    [(0, "text"), (0, {}), (1, b""), (1, []), (2, "text"), (2, None), (3, "text"), (3, 1)],
)
def test_each_part_has_its_type(index: int, value: Any) -> None:
    assert _code(*_GOOD) is None
    assert _code(*_GOOD[:index], value, *_GOOD[index + 1 :]) == "format"


@pytest.mark.parametrize(
    ("protected", "code"),
    [
        (cbor([1, -35]), "format"),
        (cbor(1), "format"),
        (b"", "algorithm"),
        (cbor({}), "algorithm"),
        (cbor({1: -7}), "algorithm"),
        (cbor({1: -35, 4: b"kid"}), "format"),
    ],
)
def test_the_protected_header_is_a_map_with_the_algorithm_alone(
    protected: bytes, code: str
) -> None:
    assert _code(protected, *_GOOD[1:]) == code


def test_a_message_has_four_parts() -> None:
    assert _code(*_GOOD[:3]) == "format"
    assert _code(*_GOOD, b"") == "format"

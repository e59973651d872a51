"""Whatever arrives, parsers refuse it with our errors, in bounded memory; one bit is enough."""

import tracemalloc
from collections.abc import Callable

import pytest

from attestation.checks import CheckLog
from attestation.errors import AttestationError
from attestation.nitro import cbor
from attestation.nitro.cose import parse_sign1
from attestation.nitro.document import parse_document
from tests.attestation.nitro.judging import VERIFIER
from tests.attestation.nitro.samples import AT, Indefinite, good_document
from tests.attestation.nitro.samples import cbor as encode
from tests.support.mutations import flipped_bits, mutations

_DOCUMENT = good_document().to_bytes()
_PAYLOAD = encode(Indefinite(good_document().members))
_NUM_MUTATIONS = 2000
_MAX_PEAK_BYTES = 1024 * 1024


def _verify(data: bytes) -> object:
    return VERIFIER.verify(data, at=AT, log=CheckLog())


@pytest.mark.parametrize(
    ("data", "parse"),
    [
        (_DOCUMENT, _verify),
        (_DOCUMENT, lambda data: parse_sign1(data, what="document")),
        (_PAYLOAD, parse_document),
        (_PAYLOAD, lambda data: cbor.decode(data, what="value", are_maps_indefinite=True)),
    ],
    ids=["verify", "cose", "document", "cbor"],
)
def test_damage_raises_only_our_errors(data: bytes, parse: Callable[[bytes], object]) -> None:
    num_refused = 0
    parse(data)
    tracemalloc.start()
    try:
        for damaged in mutations(data, _NUM_MUTATIONS, seed=8):
            try:
                parse(damaged)
            except AttestationError as err:
                assert err.code  # noqa: PT017 - every refusal has a code, some damage is harmless
                num_refused += 1
        assert tracemalloc.get_traced_memory()[1] < _MAX_PEAK_BYTES
    finally:
        tracemalloc.stop()
    assert num_refused > _NUM_MUTATIONS // 4


def test_any_flipped_bit_rejects() -> None:
    for bit, damaged in flipped_bits(_DOCUMENT, 600, seed=9):
        with pytest.raises(AttestationError):
            pytest.fail(f"bit {bit}: {_verify(damaged)}")

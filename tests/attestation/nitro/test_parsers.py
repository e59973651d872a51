"""Whatever arrives, parsers refuse it with our errors, in bounded memory; one bit is enough."""

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
from tests.support.mutations import count_refused, flipped_bits

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
    num_refused = count_refused(
        parse, data, count=_NUM_MUTATIONS, seed=8, max_peak_bytes=_MAX_PEAK_BYTES
    )
    assert num_refused > _NUM_MUTATIONS // 4


def test_any_flipped_bit_rejects() -> None:
    for bit, damaged in flipped_bits(_DOCUMENT, 600, seed=9):
        with pytest.raises(AttestationError):
            pytest.fail(f"bit {bit}: {_verify(damaged)}")

"""A raw ES384 signature is 96 bytes by a P-384 key, whatever else would verify."""

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from attestation.es384 import is_signed_es384
from tests.support import p384

_DATA = b"data"
_KEY = p384.key("signer").public_key()
_SIGNATURE = p384.sign("signer", _DATA)


def test_a_good_signature_holds() -> None:
    assert is_signed_es384(_KEY, _DATA, _SIGNATURE)


def test_another_length_of_the_same_numbers_does_not_hold() -> None:
    r, s = _SIGNATURE[:48], _SIGNATURE[48:]

    assert not is_signed_es384(_KEY, _DATA, r + b"\0" + s)
    assert not is_signed_es384(_KEY, _DATA, b"\0" + r + s)
    assert not is_signed_es384(_KEY, _DATA, p384.sign_der("signer", _DATA))


def test_numbers_outside_the_group_do_not_hold() -> None:
    for signature in (bytes(96), b"\xff" * 96, b"", bytes(95)):
        assert not is_signed_es384(_KEY, _DATA, signature)


def test_a_key_on_another_curve_does_not_hold() -> None:
    """P-256 with SHA-384 verifies, and fits into 96 bytes: but it is not ES384."""
    key = p384.key("small", ec.SECP256R1())
    r, s = decode_dss_signature(key.sign(_DATA, ec.ECDSA(hashes.SHA384())))

    signature = r.to_bytes(48, "big") + s.to_bytes(48, "big")

    assert not is_signed_es384(key.public_key(), _DATA, signature)

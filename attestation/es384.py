"""Does this raw ES384 signature hold?  What JOSE and COSE share.  [RFC 7518 sec. 3.4, RFC 9053 2.1]

The signature is r||s, both big-endian and 48 bytes; a DER signature is another format, and wrong.
"""

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

SIGNATURE_BYTES = 96
_HALF = SIGNATURE_BYTES // 2


def is_signed_es384(key: ec.EllipticCurvePublicKey, data: bytes, signature: bytes) -> bool:
    """``signature`` is one of exactly 96 bytes, by this P-384 key, over ``data``."""
    if not isinstance(key.curve, ec.SECP384R1) or len(signature) != SIGNATURE_BYTES:
        return False
    r, s = int.from_bytes(signature[:_HALF], "big"), int.from_bytes(signature[_HALF:], "big")
    try:
        key.verify(encode_dss_signature(r, s), data, ec.ECDSA(hashes.SHA384()))
    except InvalidSignature:
        return False
    return True

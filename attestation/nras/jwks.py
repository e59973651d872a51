"""Which keys does NRAS sign with?  A JWK Set, trusted for the TLS that brought it.  [RFC 7517]

Its intermediates rotate and their root is in no package, so nothing here is pinned. The set lists
more keys than one token needs: each is judged when a token asks for it, so that a key of a new kind
harms nobody else.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from cryptography.hazmat.primitives.asymmetric import ec

from attestation import strict_json
from attestation.errors import BadSignature, MalformedEvidence, UntrustedEndorsement
from attestation.nras.jws import ALGORITHM, decode_base64url, parse_kid
from attestation.strict_json import JsonObject, JsonValue
from attestation.x509 import Certificate, KeyKind, parse_certificate

MAX_JWKS_BYTES = 512 * 1024  # about 2.5 KB a key
MAX_KEYS = 128  # 36 seen at once
MAX_X5C = 4
MAX_CERTIFICATE_CHARS = 16 * 1024
_MAX_DEPTH = 4
_COORDINATE_BYTES = 48
_KEY_KINDS: frozenset[KeyKind] = frozenset({"p384"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningKey:
    """A key of the set that may sign tokens, with the life of the certificate that carries it."""

    kid: str
    public_key: ec.EllipticCurvePublicKey
    not_before: datetime
    not_after: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Jwks:
    """A parsed set: key ids are unique, the keys themselves are read by ``find``."""

    keys: Mapping[str, JsonObject]

    def find(self, kid: str) -> SigningKey:
        """The key of this id.

        Raises: UntrustedEndorsement("unknown_kid"); BadSignature: bad_key (another kind or curve,
        or not the key of its own certificate), algorithm; MalformedEvidence("format").
        """
        key = self.keys.get(kid)
        if key is None:
            raise UntrustedEndorsement("unknown_kid", f"no key {kid} among {len(self.keys)}")
        return _parse_key(kid, key)


def parse_jwks(data: bytes) -> Jwks:
    """The set in ``data``.  Raises: MalformedEvidence("format")."""
    what = "JWKS"
    document = strict_json.parse_object(
        data, what=what, max_bytes=MAX_JWKS_BYTES, max_depth=_MAX_DEPTH
    )
    members = strict_json.require_keys(document, what, required=frozenset({"keys"}))
    keys: dict[str, JsonObject] = {}
    for entry in strict_json.array(members["keys"], what, max_items=MAX_KEYS):
        if not isinstance(entry, Mapping):
            raise MalformedEvidence("format", f"{what}: a key is not an object")
        kid = parse_kid(entry.get("kid"), what)
        if kid in keys:
            raise MalformedEvidence("format", f"{what}: key id {kid} occurs twice")
        keys[kid] = entry
    if not keys:
        raise MalformedEvidence("format", f"{what}: no keys")
    return Jwks(keys=keys)


def _parse_key(kid: str, key: JsonObject) -> SigningKey:
    """Steps: 1. for signing with ES384; 2. a point on P-384; 3. the key of its certificate."""
    if key.get("alg", ALGORITHM) != ALGORITHM or key.get("use", "sig") != "sig":  # 1
        raise BadSignature("algorithm", f"key {kid} is not for {ALGORITHM} signatures")
    if (key.get("kty"), key.get("crv")) != ("EC", "P-384"):
        raise BadSignature("bad_key", f"key {kid} is not on P-384")
    x, y = _coordinate(key.get("x"), kid), _coordinate(key.get("y"), kid)  # 2
    try:
        public_key = ec.EllipticCurvePublicNumbers(x, y, ec.SECP384R1()).public_key()
    except ValueError as err:
        raise BadSignature("bad_key", f"key {kid} is not a point on P-384") from err
    certificate = _parse_leaf(kid, key.get("x5c"))  # 3
    if certificate.ec_key.public_numbers() != public_key.public_numbers():
        raise BadSignature("bad_key", f"key {kid} is not the key of its certificate")
    return SigningKey(
        kid=kid,
        public_key=public_key,
        not_before=certificate.not_before,
        not_after=certificate.not_after,
    )


def _coordinate(value: JsonValue, kid: str) -> int:
    what = f"key {kid}"
    data = decode_base64url(strict_json.text(value, what), what)
    if len(data) != _COORDINATE_BYTES:
        raise BadSignature("bad_key", f"{what}: a coordinate of {len(data)} bytes")
    return int.from_bytes(data, "big")


def _parse_leaf(kid: str, x5c: JsonValue) -> Certificate:
    """The certificate of the key itself; those after it end in no root that we know."""
    what = f"x5c of {kid}"
    chain = strict_json.array(x5c, what, max_items=MAX_X5C)
    if not chain:
        raise MalformedEvidence("format", f"{what}: empty")
    encoded = strict_json.text(chain[0], what)
    if len(encoded) > MAX_CERTIFICATE_CHARS or not encoded.isascii():
        raise MalformedEvidence("format", f"{what}: no certificate of usual size in base64")
    try:
        data = base64.b64decode(encoded, validate=True)  # not base64url  [RFC 7517 sec. 4.7]
    except binascii.Error as err:
        raise MalformedEvidence("format", f"{what}: not base64") from err
    return parse_certificate(data, what=what, key_kinds=_KEY_KINDS)

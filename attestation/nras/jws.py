"""Is this compact JWS one that our one algorithm signed?  [RFC 7515 sec. 5.2, RFC 7518 sec. 3.4]

The header chooses nothing but a key that we already trust: the algorithm is ES384 because we say
so, and a key, certificate or address that a token brings along is never looked at.
"""

import base64
import binascii
import re
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric import ec

from attestation import strict_json
from attestation.errors import BadSignature, MalformedEvidence, UntrustedEndorsement
from attestation.es384 import is_signed_es384
from attestation.strict_json import JsonObject, JsonValue

ALGORITHM = "ES384"
MAX_TOKEN_BYTES = 16 * 1024  # a device token of version 3.0 has 2.4 KB
MAX_HEADER_BYTES = 4 * 1024
MAX_DEPTH = 5
_TYPE = "JWT"
_HEADER_MEMBERS = frozenset({"alg", "kid", "typ"})
_BASE64URL = re.compile(r"[A-Za-z0-9_-]*")
_KID = re.compile(r"[\x21-\x7e]{1,128}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Jws:
    """One parsed token; nothing in it is verified. ``payload`` is for ``verify_jws`` to give out.

    ``has_other_members``: the header says more than algorithm, key id and type.
    """

    what: str
    kid: str
    has_other_members: bool
    signed_bytes: bytes
    signature: bytes
    payload: bytes


def parse_jws(token: str, *, what: str) -> Jws:
    """Three parts in strict base64url, and a header that names ES384 and a key.

    Raises: MalformedEvidence("format"); BadSignature("algorithm"): any other ``alg``, or none;
    UntrustedEndorsement("unknown_kid"): no ``kid``, so no key of ours is meant.
    """
    if not token.isascii() or len(token) > MAX_TOKEN_BYTES:
        raise MalformedEvidence("format", f"{what}: not ASCII of at most {MAX_TOKEN_BYTES} bytes")
    parts = token.split(".")
    if len(parts) != 3:
        raise MalformedEvidence("format", f"{what}: {len(parts)} parts, want 3")
    encoded_header, encoded_payload, encoded_signature = parts
    header = _parse_header(decode_base64url(encoded_header, what), what)
    if header.get("alg") != ALGORITHM:
        raise BadSignature("algorithm", f"{what}: its algorithm is not {ALGORITHM}")
    kid = header.get("kid")
    if kid is None:
        raise UntrustedEndorsement("unknown_kid", f"{what}: names no key")
    return Jws(
        what=what,
        kid=parse_kid(kid, what),
        has_other_members=not header.keys() <= _HEADER_MEMBERS,
        signed_bytes=f"{encoded_header}.{encoded_payload}".encode("ascii"),
        signature=decode_base64url(encoded_signature, what),
        payload=decode_base64url(encoded_payload, what),
    )


def verify_jws(jws: Jws, key: ec.EllipticCurvePublicKey) -> JsonObject:
    """The claims of a token that ``key`` signed; their meaning is another module's question.

    A signed header with members we do not know is refused, so that none is ever half understood.

    Raises: BadSignature("token_signature"); MalformedEvidence("format").
    """
    if not is_signed_es384(key, jws.signed_bytes, jws.signature):
        raise BadSignature("token_signature", f"{jws.what}: its signature does not hold")
    if jws.has_other_members:
        raise MalformedEvidence("format", f"{jws.what}: header members beyond alg, kid and typ")
    return parse_claims(jws)


def parse_claims(jws: Jws) -> JsonObject:
    """What the token says, for showing it: NOT verified.  Raises: MalformedEvidence("format")."""
    return strict_json.parse_object(
        jws.payload, what=jws.what, max_bytes=MAX_TOKEN_BYTES, max_depth=MAX_DEPTH
    )


def parse_kid(value: JsonValue, what: str) -> str:
    """A key id: short and printable, since messages quote it."""
    kid = strict_json.text(value, f"{what} kid")
    if not _KID.fullmatch(kid):
        raise MalformedEvidence("format", f"{what}: its kid is no short printable name")
    return kid


def decode_base64url(text: str, what: str) -> bytes:
    """The bytes of unpadded base64url in its one canonical form.  [RFC 7515 sec. 2, RFC 4648 3.5]

    Raises: MalformedEvidence("format"): other characters, padding, stray bits at the end.
    """
    if not _BASE64URL.fullmatch(text):
        raise MalformedEvidence("format", f"{what}: not unpadded base64url")
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error as err:
        raise MalformedEvidence("format", f"{what}: not unpadded base64url") from err
    if base64.urlsafe_b64encode(data).rstrip(b"=") != text.encode("ascii"):
        raise MalformedEvidence("format", f"{what}: stray bits at the end of base64url")
    return data


def _parse_header(data: bytes, what: str) -> JsonObject:
    header = strict_json.parse_object(
        data, what=f"{what} header", max_bytes=MAX_HEADER_BYTES, max_depth=MAX_DEPTH
    )
    if "crit" in header:  # RFC 7515 sec. 4.1.11: extensions that we would have to understand
        raise MalformedEvidence("format", f"{what}: critical header extensions")
    if header.get("typ", _TYPE) != _TYPE:
        raise MalformedEvidence("format", f"{what}: its typ is not {_TYPE}")
    return header

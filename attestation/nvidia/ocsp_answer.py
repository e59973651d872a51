"""What does one OCSP answer say, and about which certificate?  [RFC 6960 sec. 4.2]

Whether to believe it is asked in ``ocsp.py``: nothing is verified here.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509 import ocsp

from attestation import der
from attestation.certificate import PARSE_ERRORS
from attestation.errors import BadSignature, MalformedEvidence, UntrustedEndorsement
from attestation.x509 import Certificate

MAX_ANSWER_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class OcspAnswer:
    """What one answer says; the library reads each field on first use, so all are read here."""

    signed_bytes: bytes
    signature: bytes
    signature_hash: hashes.HashAlgorithm
    responder: x509.Certificate
    responder_name: x509.Name | None
    responder_key_hash: bytes | None
    id_hash: hashes.HashAlgorithm
    issuer_name_hash: bytes
    issuer_key_hash: bytes
    serial_number: int
    nonce: bytes | None
    status: ocsp.OCSPCertStatus
    reason: x509.ReasonFlags | None
    produced_at: datetime
    this_update: datetime
    next_update: datetime | None


def parse_answer(data: bytes) -> OcspAnswer:
    """One answer to one question, with its responder's certificate.

    Raises: MalformedEvidence("format"). UntrustedEndorsement: crl_missing, no answer; crl_issuer,
    no responder's certificate.
    """
    if not data:
        raise UntrustedEndorsement("crl_missing", "OCSP: not given")
    if len(data) > MAX_ANSWER_BYTES:
        raise MalformedEvidence("format", f"OCSP: {len(data)} bytes, at most {MAX_ANSWER_BYTES}")
    try:
        response = ocsp.load_der_ocsp_response(data)
        if response.response_status is not ocsp.OCSPResponseStatus.SUCCESSFUL:
            name = response.response_status.name
            raise UntrustedEndorsement("crl_missing", f"OCSP: the responder says {name}")
        _require_whole_octets(data)
        return _read(response)
    except PARSE_ERRORS as err:
        raise MalformedEvidence("format", "OCSP: not an answer to one question") from err


def _require_whole_octets(data: bytes) -> None:
    """No unused bits in either signature: the library ignores their count.  [X.690 sec. 11.2.1]

    ``data`` is OCSPResponse { status, [0] { { type, OCTET STRING of BasicOCSPResponse { data,
    algorithm, signature, [0] { certificate } } } } }, as the library has read it already.
    """
    _, body = der.read_all(der.read_one(data, der.SEQUENCE))
    _, octets = der.read_all(der.read_one(body.value, der.SEQUENCE))
    basic = der.read_all(der.read_one(octets.value, der.SEQUENCE))
    if len(basic) != 4:
        raise UntrustedEndorsement("crl_issuer", "OCSP: without its responder's certificate")
    certificate = der.read_one(der.read_one(basic[3].value, der.SEQUENCE), der.SEQUENCE)
    if any(part.value[:1] != b"\0" for part in (basic[2], der.read_all(certificate)[2])):
        raise MalformedEvidence("format", "OCSP: a signature is not of whole octets")


def _read(response: ocsp.OCSPResponse) -> OcspAnswer:
    """Raises: ValueError and the library's errors."""
    (single,) = response.responses
    (responder,) = response.certificates
    extensions = (*response.extensions, *response.single_extensions)
    nonces = [e.value.nonce for e in response.extensions if isinstance(e.value, x509.OCSPNonce)]
    if any(e.critical and not isinstance(e.value, x509.OCSPNonce) for e in extensions):
        raise ValueError("unknown critical extension")
    if response.signature_hash_algorithm is None:
        raise ValueError("no signature algorithm of ours")
    return OcspAnswer(
        signed_bytes=response.tbs_response_bytes,
        signature=response.signature,
        signature_hash=response.signature_hash_algorithm,
        responder=responder,
        responder_name=response.responder_name,
        responder_key_hash=response.responder_key_hash,
        id_hash=single.hash_algorithm,
        issuer_name_hash=single.issuer_name_hash,
        issuer_key_hash=single.issuer_key_hash,
        serial_number=single.serial_number,
        nonce=nonces[0] if nonces else None,
        status=single.certificate_status,
        reason=single.revocation_reason,
        produced_at=response.produced_at_utc,
        this_update=single.this_update_utc,
        next_update=single.next_update_utc,
    )


def select_answers(answers: Sequence[bytes], chain: Sequence[Certificate]) -> tuple[bytes, ...]:
    """The answers about a device's certificates that ``verify_chain_ocsp`` asks for, in its order.

    Found by serial number and key of the issuer, as a serial number is one issuer's own; empty
    where there is none. Nothing is verified here.

    Raises: MalformedEvidence("format"): not an answer to one question.
    """
    told = [(answer, *_read_cert_id(answer)) for answer in answers]

    def find(subject: Certificate, issuer: Certificate) -> bytes:
        key = key_bits(issuer.inner)
        for answer, serial_number, hash_name, key_hash in told:
            if serial_number == subject.serial_number and identifier(hash_name, key) == key_hash:
                return answer
        return b""

    return tuple(find(subject, issuer) for subject, issuer in pairwise(chain[1:]))


def _read_cert_id(data: bytes) -> tuple[int, str, bytes]:
    """Serial number, hash by which the issuer is named, and that hash of the issuer's key."""
    try:
        response = ocsp.load_der_ocsp_response(data)
        return response.serial_number, response.hash_algorithm.name, response.issuer_key_hash
    except PARSE_ERRORS as err:
        raise MalformedEvidence("format", "OCSP: not an answer to one question") from err


def identifier(hash_name: str, data: bytes) -> bytes:
    """Of a name or key, to identify it: that it may be SHA-1 is no matter of trust."""
    return hashlib.new(hash_name, data, usedforsecurity=False).digest()


def key_bits(certificate: x509.Certificate) -> bytes:
    """The value of the certificate's subjectPublicKey BIT STRING, of a key on a curve."""
    key = certificate.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise BadSignature("bad_key", "OCSP: a key is not on a curve")
    return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)

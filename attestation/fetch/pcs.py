"""What does Intel's provisioning service, or a PCCS in its place, answer?  [Intel PCS API v4]

What comes back is unverified. A signed object is cut out of the answer as it was received, since
its signature is over those bytes; its issuer chain is percent-encoded PEM in a header.
"""

import json
import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote_to_bytes

from attestation.errors import MalformedEvidence
from attestation.fetch.crl import crl_bytes
from attestation.fetch.errors import FetchFailed, MissingCode
from attestation.fetch.http import Answer, Asked, Fetcher
from attestation.strict_json import hex_bytes, parse_object, require_keys, text
from attestation.tdx.collateral import MAX_OBJECT_BYTES, MAX_OBJECT_DEPTH, SIGNATURE_BYTES
from attestation.tdx.quote import Tee
from attestation.x509 import MAX_CRL_BYTES

PckCa = Literal["platform", "processor"]

MAX_CHAIN_HEADER_BYTES = 32 * 1024
MAX_ANSWER_BYTES = MAX_OBJECT_BYTES + 1024  # the object, its signature and the names of both
_MEMBER = re.compile(r'\s*[{,]\s*"([A-Za-z]+)"\s*:\s*')
_CHAIN_HEADERS = {
    "tcbInfo": "tcb-info-issuer-chain",
    "enclaveIdentity": "sgx-enclave-identity-issuer-chain",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedText:
    """TCB info or QE identity as received: the signed text, r||s, and the signer's chain in PEM."""

    text: str
    signature: bytes
    issuer_chain: str

    def to_bytes(self) -> bytes:
        """One JSON object, for a cache."""
        members = {
            "text": self.text,
            "signature": self.signature.hex(),
            "issuer_chain": self.issuer_chain,
        }
        return json.dumps(members).encode("utf-8")

    @classmethod
    def from_bytes(cls, data: bytes) -> "SignedText":
        """What ``to_bytes`` made.  Raises: MalformedEvidence("format")."""
        what = "signed text"
        members = require_keys(
            parse_object(data, what=what, max_bytes=3 * MAX_ANSWER_BYTES, max_depth=1),
            what,
            required=frozenset({"text", "signature", "issuer_chain"}),
        )
        return cls(
            text=text(members["text"], what),
            signature=hex_bytes(members["signature"], what, num_bytes=SIGNATURE_BYTES),
            issuer_chain=text(members["issuer_chain"], what),
        )


def fetch_tcb_info(fetcher: Fetcher, base: str, *, tee: Tee, fmspc: bytes) -> SignedText:
    """Raises: FetchFailed."""
    path = f"/{tee}/certification/v4/tcb"
    params = {"fmspc": fmspc.hex(), **_update(fetcher)}
    return _fetch_signed(fetcher, base, path, params, "tcbInfo", "TCB info")


def fetch_qe_identity(fetcher: Fetcher, base: str, *, tee: Tee) -> SignedText:
    """Raises: FetchFailed."""
    path = f"/{tee}/certification/v4/qe/identity"
    return _fetch_signed(fetcher, base, path, _update(fetcher), "enclaveIdentity", "QE identity")


def fetch_pck_crl(fetcher: Fetcher, base: str, *, ca: PckCa) -> bytes:
    """DER or PEM.  Raises: FetchFailed."""
    asked = Asked(
        service="pcs",
        base=base,
        path="/sgx/certification/v4/pckcrl",
        params={"ca": ca, "encoding": "der"},
        what="PCK CRL",
        code="crl_missing",
        max_bytes=MAX_CRL_BYTES,
    )
    return crl_bytes(fetcher.fetch(asked).content, asked)


def fetch_root_crl(fetcher: Fetcher, base: str) -> bytes:
    """DER or PEM; ``base`` is the whole address.  Raises: FetchFailed."""
    asked = Asked(
        service="root_crl",
        base=base,
        path="",
        what="root CRL",
        code="crl_missing",
        max_bytes=MAX_CRL_BYTES,
    )
    return crl_bytes(fetcher.fetch(asked).content, asked)


def parse_signed(answer: Answer, member: str, what: str) -> SignedText:
    """The object ``member`` of an answer {member, signature} and of its header.

    Raises: MalformedEvidence("format").
    """
    require_keys(
        parse_object(
            answer.content, what=what, max_bytes=MAX_ANSWER_BYTES, max_depth=MAX_OBJECT_DEPTH + 1
        ),
        what,
        required=frozenset({member, "signature"}),
    )
    members = _members_as_sent(answer.content.decode("utf-8"))
    if not {member, "signature"} <= members.keys():
        raise MalformedEvidence("format", f"{what}: a member's name is not written plainly")
    return SignedText(
        text=members[member],
        signature=hex_bytes(json.loads(members["signature"]), what, num_bytes=SIGNATURE_BYTES),
        issuer_chain=_issuer_chain(answer.headers.get(_CHAIN_HEADERS[member], ""), what),
    )


def _fetch_signed(
    fetcher: Fetcher, base: str, path: str, params: dict[str, str], member: str, what: str
) -> SignedText:
    code: MissingCode = "endorsement_missing"
    asked = Asked(
        service="pcs",
        base=base,
        path=path,
        params=params,
        what=what,
        code=code,
        max_bytes=MAX_ANSWER_BYTES,
    )
    answer = fetcher.fetch(asked)
    try:
        return parse_signed(answer, member, what)
    except MalformedEvidence as err:
        raise FetchFailed(code, "content", f"{what}: the answer has another form ({err})") from err


def _update(fetcher: Fetcher) -> dict[str, str]:
    """Intel takes one of the two, never both."""
    number = fetcher.config.tcb_evaluation_data_number
    if number is not None:
        return {"tcbEvaluationDataNumber": str(number)}
    return {"update": fetcher.config.tcb_update}


def _members_as_sent(document: str) -> dict[str, str]:
    """The text of each member of an object that strict parsing accepted."""
    decoder = json.JSONDecoder()
    members: dict[str, str] = {}
    at = 0
    while match := _MEMBER.match(document, at):
        _, at = decoder.raw_decode(document, match.end())
        members[match[1]] = document[match.end() : at]
    return members


def _issuer_chain(header: str, what: str) -> str:
    if not header or len(header) > MAX_CHAIN_HEADER_BYTES:
        raise MalformedEvidence("format", f"{what}: no issuer chain in the headers, or a long one")
    try:
        return unquote_to_bytes(header).decode("ascii")
    except ValueError as err:
        raise MalformedEvidence("format", f"{what}: the issuer chain is not PEM") from err

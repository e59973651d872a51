"""Which collateral does a quote need, as fetched and before anything about it is verified?

Intel's provisioning service gives five objects: TCB info, QE identity, the CRL of the PCK issuer,
the CRL of the root, and issuer chains.  Signed texts are kept exactly as received, because the
signature is over those bytes.  [Intel PCS API v4]
"""

from dataclasses import dataclass

from attestation.errors import MalformedEvidence
from attestation.strict_json import JsonObject, JsonValue, parse_object, require_keys, text

MAX_COLLATERAL_BYTES = 1024 * 1024
_PEM_CRL = "-----BEGIN X509 CRL-----"
_FIELDS = frozenset(
    {
        "pck_crl",
        "root_ca_crl",
        "tcb_info",
        "tcb_info_signature",
        "tcb_info_issuer_chain",
        "qe_identity",
        "qe_identity_signature",
        "qe_identity_issuer_chain",
    }
)
_OPTIONAL = frozenset({"pck_crl_issuer_chain"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TdxCollateral:
    """Unverified collateral: CRLs DER or PEM, chains PEM leaf first, signatures raw r||s.

    The PCK CRL needs no issuer chain here: its issuer is in the quote's own chain.
    """

    pck_crl: bytes
    root_ca_crl: bytes
    tcb_info: str
    tcb_info_signature: bytes
    tcb_info_issuer_chain: str
    qe_identity: str
    qe_identity_signature: bytes
    qe_identity_issuer_chain: str
    pck_crl_issuer_chain: str = ""

    @classmethod
    def from_json_value(cls, value: JsonValue) -> "TdxCollateral":
        """From the JSON form.  Raises: MalformedEvidence("format")."""
        fields = require_keys(value, "collateral", required=_FIELDS, optional=_OPTIONAL)
        return cls(
            pck_crl=_crl(fields, "pck_crl"),
            root_ca_crl=_crl(fields, "root_ca_crl"),
            tcb_info=text(fields["tcb_info"], "collateral.tcb_info"),
            tcb_info_signature=_hex(fields, "tcb_info_signature"),
            tcb_info_issuer_chain=text(fields["tcb_info_issuer_chain"], "collateral chain"),
            qe_identity=text(fields["qe_identity"], "collateral.qe_identity"),
            qe_identity_signature=_hex(fields, "qe_identity_signature"),
            qe_identity_issuer_chain=text(fields["qe_identity_issuer_chain"], "collateral chain"),
            pck_crl_issuer_chain=text(fields.get("pck_crl_issuer_chain", ""), "collateral chain"),
        )

    def to_json_value(self) -> JsonObject:
        """The JSON form; CRLs as hex of DER, or PEM when they were PEM."""
        return {
            "pck_crl": _crl_text(self.pck_crl),
            "root_ca_crl": _crl_text(self.root_ca_crl),
            "tcb_info": self.tcb_info,
            "tcb_info_signature": self.tcb_info_signature.hex(),
            "tcb_info_issuer_chain": self.tcb_info_issuer_chain,
            "qe_identity": self.qe_identity,
            "qe_identity_signature": self.qe_identity_signature.hex(),
            "qe_identity_issuer_chain": self.qe_identity_issuer_chain,
            "pck_crl_issuer_chain": self.pck_crl_issuer_chain,
        }


def parse_collateral(data: bytes) -> TdxCollateral:
    """Collateral from a JSON file's bytes.  Raises: MalformedEvidence("format")."""
    return TdxCollateral.from_json_value(
        parse_object(data, what="collateral", max_bytes=MAX_COLLATERAL_BYTES, max_depth=2)
    )


def _crl(fields: JsonObject, name: str) -> bytes:
    value = text(fields[name], f"collateral.{name}")
    return value.encode("utf-8") if value.startswith(_PEM_CRL) else _hex(fields, name)


def _crl_text(crl: bytes) -> str:
    return crl.decode("utf-8") if crl.startswith(_PEM_CRL.encode()) else crl.hex()


def _hex(fields: JsonObject, name: str) -> bytes:
    try:
        return bytes.fromhex(text(fields[name], f"collateral.{name}"))
    except ValueError as err:
        raise MalformedEvidence("format", f"collateral.{name}: not hex") from err

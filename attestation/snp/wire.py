"""How do AMD's endorsements travel in JSON?  Certificates and CRL in base64, the chain as PEM."""

import base64
import binascii

from attestation.errors import MalformedEvidence
from attestation.snp.endorsements import SnpEndorsements
from attestation.strict_json import JsonObject, JsonValue, require_keys, text

_KEYS = frozenset({"vek", "chain", "crl"})


def endorsements_to_json(endorsements: SnpEndorsements) -> JsonObject:
    """The JSON form; ``endorsements_from_json`` reads it back."""
    return {
        "vek": base64.b64encode(endorsements.vek).decode("ascii"),
        "chain": endorsements.chain.decode("ascii"),
        "crl": None
        if endorsements.crl is None
        else base64.b64encode(endorsements.crl).decode("ascii"),
    }


def endorsements_from_json(value: JsonValue) -> SnpEndorsements:
    """From the JSON form.  Raises: MalformedEvidence("format")."""
    what = "endorsements"
    fields = require_keys(value, what, required=_KEYS)
    crl = fields["crl"]
    return SnpEndorsements(
        vek=_base64(fields["vek"], f"{what}.vek"),
        chain=text(fields["chain"], f"{what}.chain").encode("utf-8"),
        crl=None if crl is None else _base64(crl, f"{what}.crl"),
    )


def _base64(value: JsonValue, what: str) -> bytes:
    try:
        return base64.b64decode(text(value, what), validate=True)
    except (binascii.Error, ValueError) as err:
        raise MalformedEvidence("format", f"{what}: not base64") from err

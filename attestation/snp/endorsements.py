"""What does AMD vouch for, and in which bytes does it arrive?  [AMD 57230]"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SnpEndorsements:
    """Unverified bytes; a root among them counts when its fingerprint is pinned, not otherwise.

    ``vek``: the VCEK or VLEK, DER or PEM. ``chain``: PEM of ASK or ASVK, then ARK.
    ``crl``: what the ARK signed, DER or PEM; None when none came along.
    """

    vek: bytes
    chain: bytes
    crl: bytes | None

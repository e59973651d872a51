"""What does an appraisal need of a CPU TEE, whichever family verified it?"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from attestation.anchors import Anchor
from attestation.model import ClaimValue


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuClaims:
    """Claims of genuine Evidence, made by a family's ``cpu.py`` from its own verified claims.

    ``section`` names the policy section whose rules judge ``verified``, the family's own claims;
    ``facts`` are those claims as the verdict shows them. ``shortfall`` says in words what is less
    than current although a policy may accept it, and is empty when nothing is.
    """

    section: str
    tee: str
    anchor: Anchor
    report_data: bytes
    not_after: datetime
    facts: Mapping[str, ClaimValue]
    verified: object
    shortfall: str = ""
    not_covered: tuple[str, ...] = ()

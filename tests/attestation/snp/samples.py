"""SNP Evidence to test with: good by default, and judged as a whole."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from attestation.anchors import TrustAnchors
from attestation.checks import CheckLog
from attestation.errors import AttestationError
from attestation.policy_table import PolicyTable
from attestation.rules import Rule
from attestation.snp.endorsements import SnpEndorsements
from attestation.snp.product import GENOA, MILAN, TURIN
from attestation.snp.rules import parse_rules
from attestation.snp.verifier import SnpClaims, SnpVerifier
from tests.support.fake_snp import AT, CHIP_ID, LEVELS, MEASUREMENT, FakeSnp, anchors

ANCHORS = anchors(*(FakeSnp(product=product) for product in (MILAN, GENOA, TURIN)))
_FLOOR = {name: level for name, level in LEVELS.items() if name != "fmc"}
POLICY: dict[str, Any] = {
    "products": ["Genoa", "Milan", "Turin"],
    "debug": "refused",
    "policy_required": ["single_socket"],
    "policy_refused": ["migration", "smt"],
    "platform_required": ["alias_check", "ecc"],
    "platform_refused": ["smt", "tsme"],
    "max_vmpl": 0,
    "min_guest_svn": 2,
    "min_tcb": {"Genoa": _FLOOR, "Milan": _FLOOR, "Turin": LEVELS},
    "crl": "required",
    "signing_cas": "any",
    "chip_ids": [CHIP_ID.hex(), CHIP_ID[:8].hex() + "00" * 56],
    "measurements": {
        "mode": "required",
        "measurement": [MEASUREMENT.hex(), "00" * 48],
        "host_data": ["04" * 32],
        "id_key_digest": ["05" * 48],
        "author_key_digest": ["06" * 48],
        "family_id": ["01" * 16],
        "image_id": ["02" * 16],
    },
}


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What is judged, under which policy and at which time; ``policy`` replaces POLICY's keys."""

    report: bytes
    vek: bytes
    chain: bytes
    crl: bytes | None
    policy: Mapping[str, Any] = field(default_factory=dict)
    at: datetime = AT


def evidence(tee: FakeSnp | None = None, **changes: Any) -> Evidence:
    """Good Evidence of ``tee``; ``changes`` replace members of it."""
    tee = tee or FakeSnp()
    made = {"report": tee.report(), "vek": tee.vek(), "chain": tee.chain(), "crl": tee.crl()}
    return Evidence(**made | changes)


def rules(changes: Mapping[str, Any]) -> tuple[Rule[SnpClaims], ...]:
    """The rules of POLICY with ``changes``, where None leaves a key out.

    A policy with problems is a defect of the test.
    """
    problems: list[str] = []
    table = {key: value for key, value in (POLICY | dict(changes)).items() if value is not None}
    made = parse_rules(PolicyTable("snp.", table, problems))
    assert problems == []
    return made


def verify(
    given: Evidence, log: CheckLog | None = None, trusted: TrustAnchors = ANCHORS
) -> SnpClaims:
    """The claims of genuine Evidence under the fake roots."""
    endorsements = SnpEndorsements(vek=given.vek, chain=given.chain, crl=given.crl)
    verifier = SnpVerifier(anchors=trusted)
    return verifier.verify(given.report, endorsements, at=given.at, log=log or CheckLog())


def failures(given: Evidence) -> list[str | None]:
    """The codes of all failed checks: the verifier's first, or those of every rule."""
    log = CheckLog()
    try:
        claims = verify(given, log)
    except AttestationError:
        return [check.code for check in log.checks if check.outcome == "fail"]
    for rule in rules(given.policy):
        try:
            with log.step(rule.name, rule.passed):
                rule.require(claims)
        except AttestationError:
            continue
    return [check.code for check in log.checks if check.outcome == "fail"]

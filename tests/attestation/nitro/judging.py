"""The whole appraisal of a Nitro document, as the tests run it: verifier, then every rule."""

from datetime import datetime
from typing import Any

from cryptography.hazmat.primitives import hashes

from attestation.anchors import Anchor, TrustAnchors
from attestation.checks import CheckLog
from attestation.errors import AttestationError
from attestation.nitro.rules import NonceExpected, PublicKeyExpected, UserDataExpected, parse_rules
from attestation.nitro.verifier import NitroClaims, NitroVerifier
from attestation.policy_table import PolicyTable
from attestation.rules import Rule
from tests.attestation.nitro.samples import NONCE, PUBLIC_KEY, USER_DATA, root

VERIFIER = NitroVerifier(
    anchors=TrustAnchors(
        anchors=(
            Anchor(
                name="nitro test root",
                kind="vendor",
                family="aws-nitro",
                sha256=root().fingerprint(hashes.SHA256()).hex(),
                source="tests/attestation/nitro/samples.py",
            ),
        )
    )
)


def failures(data: bytes, *, policy: dict[str, Any], at: datetime) -> list[tuple[str, str | None]]:
    """(check, code) of everything that fails: the step that ended it, or each rule that refuses."""
    log = CheckLog()
    try:
        claims = VERIFIER.verify(data, at=at, log=log)
    except AttestationError:
        return [(check.name, check.code) for check in log.checks if check.outcome == "fail"]
    problems: list[str] = []
    rules: tuple[Rule[NitroClaims], ...] = (
        *parse_rules(PolicyTable("nitro.", policy, problems)),
        NonceExpected(nonce=NONCE),
        PublicKeyExpected(public_key=PUBLIC_KEY),
        UserDataExpected(user_data=USER_DATA),
    )
    for rule in rules:
        try:
            rule.require(claims)
        except AttestationError as err:
            log.fail(rule.name, err)
    assert not problems
    return [(check.name, check.code) for check in log.checks if check.outcome == "fail"]

"""The whole appraisal of an NRAS answer, as the tests run it: verifier, then every rule."""

from datetime import datetime
from typing import Any

from attestation.checks import CheckLog
from attestation.errors import AttestationError
from attestation.nras.jwks import parse_jwks
from attestation.nras.rules import parse_rules
from attestation.nras.token import verify_nras
from attestation.policy_table import PolicyTable
from tests.attestation.nras.samples import to_json


def failures(
    eat: Any, jwks: Any, *, nonce: bytes, policy: dict[str, Any], at: datetime
) -> list[tuple[str, str | None]]:
    """(check, code) of everything that fails: the step that ended it, or each rule that refuses."""
    log = CheckLog()
    try:
        with log.step("jwks", "the JWKS follows its format"):
            keys = parse_jwks(to_json(jwks))
        claims = verify_nras(to_json(eat), keys, nonce=nonce, at=at, log=log)
    except AttestationError:
        return [(check.name, check.code) for check in log.checks if check.outcome == "fail"]
    problems: list[str] = []
    for rule in parse_rules(PolicyTable("nras.", policy, problems)):
        try:
            rule.require(claims)
        except AttestationError as err:
            log.fail(rule.name, err)
    assert not problems
    return [(check.name, check.code) for check in log.checks if check.outcome == "fail"]

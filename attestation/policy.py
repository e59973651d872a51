"""What does a RelyingParty accept?  An AppraisalPolicy: TOML in, a closed set of rules out.

Every key is known, required and non-empty, so nothing is accepted by leaving it out; all problems
are reported together. The digest is over the canonical form, so comments do not change it.
"""

import hashlib
import tomllib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import cast

from attestation.anchors import ANCHOR_KINDS
from attestation.binding import jcs
from attestation.errors import MalformedEvidence, PolicyError
from attestation.policy_table import PolicyTable
from attestation.rules import Rule
from attestation.strict_json import JsonValue
from attestation.tdx.rules import MeasurementsExpected, TeeTypeAllowed, parse_rules
from attestation.tdx.verifier import TdxClaims

SHIPPED = ("production", "development")
MAX_POLICY_BYTES = 256 * 1024
TEE_TYPES = frozenset({"tdx", "sgx"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AppraisalPolicy:
    """A loaded policy; made by ``parse_policy`` and ``load_policy``."""

    name: str
    anchor_kinds: frozenset[str]
    rules: tuple[Rule[TdxClaims], ...]
    are_measurements_checked: bool
    sha256: str

    @property
    def allows_simulated(self) -> bool:
        """Evidence under the fake root is accepted, as a warning."""
        return "fake" in self.anchor_kinds


def load_policy(source: str | Path) -> AppraisalPolicy:
    """``production``, ``development`` or the path of a TOML file.

    Raises: PolicyError: no such policy, or every problem in it.
    """
    if isinstance(source, str) and source in SHIPPED:
        folder = resources.files("attestation").joinpath("policies")
        return parse_policy(folder.joinpath(f"{source}.toml").read_bytes())
    try:
        with Path(source).open("rb") as file:
            data = file.read(MAX_POLICY_BYTES + 1)
    except OSError as err:
        raise PolicyError(f"policy: cannot read {source}: {err.strerror}") from err
    return parse_policy(data)


def parse_policy(data: bytes) -> AppraisalPolicy:
    """The policy in TOML bytes.  Raises: PolicyError listing every problem."""
    if len(data) > MAX_POLICY_BYTES:
        raise PolicyError(f"policy: more than {MAX_POLICY_BYTES} bytes")
    try:
        document = tomllib.loads(data.decode("utf-8"))
        digest = hashlib.sha256(jcs(cast("JsonValue", document))).hexdigest()
    except (ValueError, RecursionError) as err:
        raise PolicyError(f"policy: not TOML: {err}") from err
    except MalformedEvidence as err:  # a float or date, which no key takes
        raise PolicyError(f"policy: a value of a kind that no key takes: {err}") from err
    problems: list[str] = []
    root = PolicyTable("", document, problems)
    name = root.name("name")
    anchor_kinds = root.names("anchors", ANCHOR_KINDS.__contains__)
    tee_types = root.names("tee_types", TEE_TYPES.__contains__)
    rules = (TeeTypeAllowed(allowed=tee_types), *parse_rules(root))
    root.finish()
    if problems:
        raise PolicyError("policy: " + "; ".join(problems))
    return AppraisalPolicy(
        name=name,
        anchor_kinds=anchor_kinds,
        rules=rules,
        are_measurements_checked=any(isinstance(rule, MeasurementsExpected) for rule in rules),
        sha256=digest,
    )

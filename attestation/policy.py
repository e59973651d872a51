"""What does a RelyingParty accept?  An AppraisalPolicy: TOML in, a closed set of rules out.

Every key is known, required and non-empty, so nothing is accepted by leaving it out; all problems
are reported together. The digest is over the canonical form, so comments do not change it.
"""

import hashlib
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import cast

from attestation.anchors import ANCHOR_KINDS
from attestation.binding import jcs
from attestation.errors import MalformedEvidence, PolicyError
from attestation.rules import (
    DebugOff,
    EvaluationFloor,
    MeasurementsExpected,
    NoServiceTd,
    Rule,
    TcbStatusAllowed,
    TdAttributesSound,
    TeeTypeAllowed,
)
from attestation.strict_json import JsonValue

SHIPPED = ("production", "development")
MAX_POLICY_BYTES = 256 * 1024
TEE_TYPES = frozenset({"tdx", "sgx"})
ALLOWABLE_STATUSES = frozenset(
    {
        "UpToDate",
        "SWHardeningNeeded",
        "ConfigurationNeeded",
        "ConfigurationAndSWHardeningNeeded",
        "OutOfDate",
        "OutOfDateConfigurationNeeded",
    }
)  # Revoked can never be allowed
REGISTERS = ("mrtd", "mrseam", "rtmr0", "rtmr1", "rtmr2", "rtmr3")
_ADVISORY = re.compile(r"INTEL-SA-\d{5}")
_REGISTER_HEX = re.compile(r"[0-9a-f]{96}")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AppraisalPolicy:
    """A loaded policy; made by ``parse_policy`` and ``load_policy``."""

    name: str
    anchor_kinds: frozenset[str]
    rules: tuple[Rule, ...]
    are_measurements_checked: bool
    sha256: str

    @property
    def allows_simulated(self) -> bool:
        """Evidence under the fake root is accepted, as a warning."""
        return "fake" in self.anchor_kinds


@dataclass(slots=True)
class _Table:
    """One TOML table being read; collects problems instead of raising at the first."""

    path: str
    values: Mapping[str, object]
    problems: list[str]
    used: set[str] = field(default_factory=set)

    def table(self, key: str) -> "_Table":
        value = self._get(key)
        if not isinstance(value, Mapping):
            if value is not None:
                self.problems.append(f"{self.path}{key}: want a table")
            value = {}
        return _Table(f"{self.path}{key}.", value, self.problems)

    def choice(self, key: str, choices: tuple[str, ...]) -> str:
        value = self._get(key)
        if value in choices:
            return value
        if value is not None:
            self.problems.append(f"{self.path}{key}: want one of {', '.join(choices)}")
        return choices[0]

    def name(self, key: str) -> str:
        value = self._get(key)
        if isinstance(value, str) and _NAME.fullmatch(value):
            return value
        if value is not None:
            self.problems.append(f"{self.path}{key}: want a short lower-case name")
        return ""

    def number(self, key: str) -> int:
        value = self._get(key)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
            return value
        if value is not None:
            self.problems.append(f"{self.path}{key}: want a number of at least 1")
        return 0

    def names(
        self, key: str, is_known: Callable[[str], bool], *, may_be_empty: bool = False
    ) -> frozenset[str]:
        value = self._get(key)
        if value is None:
            return frozenset()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.problems.append(f"{self.path}{key}: want a list of strings")
            return frozenset()
        if not value and not may_be_empty:
            self.problems.append(f"{self.path}{key}: empty, so nothing could ever be accepted")
        for item in value:
            if not is_known(item):
                self.problems.append(f"{self.path}{key}: {item!r} is not a value it takes")
        return frozenset(value)

    def finish(self) -> None:
        self.problems.extend(
            f"{self.path}{key}: unknown key" for key in sorted(self.values.keys() - self.used)
        )

    def has(self, key: str) -> bool:
        return key in self.values

    def _get(self, key: str) -> object:
        self.used.add(key)
        if key not in self.values:
            self.problems.append(f"{self.path}{key}: missing")
        return self.values.get(key)


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
    root = _Table("", document, problems)
    name = root.name("name")
    anchor_kinds = root.names("anchors", ANCHOR_KINDS.__contains__)
    tee_types = root.names("tee_types", TEE_TYPES.__contains__)
    rules: list[Rule] = [TeeTypeAllowed(allowed=tee_types), *_td_rules(root.table("td"))]
    measurements = _measurement_rules(root.table("measurements"))
    rules += [*_tcb_rules(root.table("tcb")), *measurements]
    root.finish()
    if problems:
        raise PolicyError("policy: " + "; ".join(problems))
    return AppraisalPolicy(
        name=name,
        anchor_kinds=anchor_kinds,
        rules=tuple(rules),
        are_measurements_checked=bool(measurements),
        sha256=digest,
    )


def _td_rules(table: _Table) -> list[Rule]:
    table.choice("debug", ("refused",))  # no policy can allow it; it is there to be read
    service_td = table.choice("service_td", ("refused", "allowed"))
    septve = table.choice("septve_disable", ("required", "not_required"))
    table.finish()
    attributes = TdAttributesSound(is_septve_disable_required=septve == "required")
    rules: list[Rule] = [DebugOff(), attributes]
    return [*rules, NoServiceTd()] if service_td == "refused" else rules


def _tcb_rules(table: _Table) -> list[Rule]:
    statuses = table.names("statuses", ALLOWABLE_STATUSES.__contains__)
    advisories = table.names("advisories", _is_advisory, may_be_empty=True)
    minimum = table.number("min_evaluation_data_number")
    table.finish()
    return [
        EvaluationFloor(minimum=minimum),
        TcbStatusAllowed(statuses=statuses, advisories=advisories),
    ]


def _measurement_rules(table: _Table) -> list[Rule]:
    """``mode`` is said aloud: leaving reference values out is never a silent pass."""
    mode = table.choice("mode", ("required", "not_checked"))
    registers = [name for name in REGISTERS if table.has(name)]
    if mode == "not_checked":
        table.finish()
        return []
    values = tuple((name, table.names(name, _is_register_hex)) for name in registers)
    if not values:
        table.problems.append(f"{table.path}mode: required, but no register has reference values")
    table.finish()
    return [MeasurementsExpected(values=values)]


def _is_advisory(name: str) -> bool:
    return _ADVISORY.fullmatch(name) is not None


def _is_register_hex(value: str) -> bool:
    return _REGISTER_HEX.fullmatch(value) is not None

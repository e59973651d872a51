"""What does a RelyingParty accept?  An AppraisalPolicy: TOML in, a closed set of rules out.

Every key is known, required and non-empty, so nothing is accepted by leaving it out; all problems
are reported together. The digest is over the canonical form, so comments do not change it.
"""

import hashlib
import importlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal, cast, get_args

from attestation.anchors import ANCHOR_KINDS
from attestation.binding import jcs
from attestation.errors import MalformedEvidence, PolicyError
from attestation.policy_table import PolicyTable
from attestation.profiles import PROFILES
from attestation.reference_files import (
    FileReader,
    folder_reader,
    no_files,
    with_reference_values,
)
from attestation.rules import LenientRule, Rule
from attestation.strict_json import JsonValue

SHIPPED = ("production", "development")
MAX_POLICY_BYTES = 256 * 1024
MAX_PROBLEMS = 100  # told; the others are counted
OWN_PROFILE = "starshade"
CPU_TEES = {"tdx": "tdx", "sgx": "tdx", "snp": "snp", "nitro": "nitro"}  # TEE: its section
SECTIONS = {  # section: the module whose parse_rules reads it
    "tdx": "attestation.tdx.rules",
    "snp": "attestation.snp.rules",
    "nitro": "attestation.nitro.rules",
    "nvidia": "attestation.nvidia.rules",
    "nras": "attestation.nras.rules",
}
REFERENCE_RULES = frozenset(  # the rules that compare what runs with reference values
    {"measurements", "hardware_model", "driver_version", "vbios_version"}
)
Need = Literal["required", "when_present", "refused"]
_NEEDS = get_args(Need)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppraisalPolicy:
    """A loaded policy; made by ``parse_policy`` and ``load_policy``.

    ``rules`` has the rules of each section, by section; a section that it lacks accepts nothing.
    """

    name: str
    anchor_kinds: frozenset[str]
    cpu: frozenset[str]
    gpu: Need
    nras: Need
    profiles: frozenset[str]
    rules: Mapping[str, tuple[Rule[Any], ...]]
    sha256: str

    @property
    def allows_simulated(self) -> bool:
        """Evidence under the fake root is accepted, as a warning."""
        return "fake" in self.anchor_kinds

    @property
    def allows_foreign(self) -> bool:
        """Evidence under a root that the caller added is accepted, as a warning."""
        return "foreign" in self.anchor_kinds

    @property
    def warned(self) -> tuple[str, ...]:
        """What is accepted and makes the verdict a warning, in words."""
        rules = [rule for section in self.rules.values() for rule in section]
        told = [
            words for rule in rules if isinstance(rule, LenientRule) for words in rule.conceded()
        ]
        return (
            *told,
            *(f"a root of kind {kind}" for kind in sorted(self.anchor_kinds - {"vendor"})),
        )

    def has_reference_values(self, section: str) -> bool:
        """The section compares measurements with reference values."""
        return any(rule.name in REFERENCE_RULES for rule in self.rules.get(section, ()))


def load_policy(source: str | Path) -> AppraisalPolicy:
    """``production``, ``development`` or the path of a TOML file.

    Raises: PolicyError: no such policy, or every problem in it.
    """
    if isinstance(source, str) and source in SHIPPED:
        return load_internal_policy(source)
    path = Path(source)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_POLICY_BYTES + 1)
    except OSError as err:
        raise PolicyError(f"policy: cannot read {source}: {err.strerror}") from err
    return parse_policy(data, read=folder_reader(path.parent))


def load_internal_policy(name: str) -> AppraisalPolicy:
    """A policy that lies in the package, also one that is not for RelyingParties to choose."""
    folder = resources.files("attestation").joinpath("policies")
    return parse_policy(folder.joinpath(f"{name}.toml").read_bytes())


def parse_policy(data: bytes, *, read: FileReader = no_files) -> AppraisalPolicy:
    """The policy in TOML bytes; ``read`` gets the files that it names.

    Raises: PolicyError listing every problem.
    """
    if len(data) > MAX_POLICY_BYTES:
        raise PolicyError(f"policy: more than {MAX_POLICY_BYTES} bytes")
    try:
        document = with_reference_values(tomllib.loads(data.decode("utf-8")), read)
        digest = hashlib.sha256(jcs(cast("JsonValue", document))).hexdigest()
    except (ValueError, RecursionError) as err:
        raise PolicyError(f"policy: not TOML: {err}") from err
    except MalformedEvidence as err:  # a float or date, which no key takes
        raise PolicyError(f"policy: a value of a kind that no key takes: {err}") from err
    problems: list[str] = []
    root = PolicyTable("", cast("Mapping[str, object]", document), problems)
    evidence = root.table("evidence")
    cpu = evidence.names("cpu", CPU_TEES.__contains__)
    gpu = cast("Need", evidence.choice("gpu", _NEEDS))
    nras = cast("Need", evidence.choice("nras", _NEEDS))
    binding = root.table("binding")
    policy = AppraisalPolicy(
        name=root.name("name"),
        anchor_kinds=root.names("anchors", ANCHOR_KINDS.__contains__),
        cpu=cpu,
        gpu=gpu,
        nras=nras,
        profiles=binding.names("profiles", {OWN_PROFILE, *PROFILES}.__contains__),
        rules={name: _rules(root, name) for name in _sections(root, cpu, gpu, nras)},
        sha256=digest,
    )
    for table in (evidence, binding, root):
        table.finish()
    if problems:
        if len(problems) > MAX_PROBLEMS:
            problems[MAX_PROBLEMS:] = [f"and {len(problems) - MAX_PROBLEMS} more problems"]
        raise PolicyError("policy: " + "; ".join(problems))
    return policy


def _sections(root: PolicyTable, cpu: frozenset[str], gpu: Need, nras: Need) -> list[str]:
    """The sections that the accepted kinds of Evidence need; any other is an unknown key.

    Once those kinds are themselves in doubt, every section that is there is read.
    """
    if root.problems:
        return [name for name in SECTIONS if root.has(name)]
    needed = {CPU_TEES[tee] for tee in cpu}
    needed |= {name for name, need in (("nvidia", gpu), ("nras", nras)) if need != "refused"}
    return [name for name in SECTIONS if name in needed]


def _rules(root: PolicyTable, section: str) -> tuple[Rule[Any], ...]:
    module = importlib.import_module(SECTIONS[section])
    return cast("tuple[Rule[Any], ...]", module.parse_rules(root.table(section)))

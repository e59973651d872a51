"""Do the published cases hold?  Each case of a vector folder is run at its own time and compared.

A family's ``cases.py`` has ``run_case``; here is which folder it serves, and what counts as right.
"""

import importlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Protocol, cast


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseOutcome:
    """What a family made of one case.

    ``code`` is the error class of a rejection. ``reported`` holds values found on the way, under
    the names that ``expected`` uses (tcb_status, advisories, status, product, ...); those that the
    case expects are compared whatever the verdict.
    """

    verdict: Literal["accept", "reject"]
    code: str | None = None
    reported: Mapping[str, object] = field(default_factory=dict)


class CaseRunner(Protocol):
    """Runs one case; ``read_input`` gets what ``inputs`` names; ``at`` is the only clock."""

    def __call__(
        self, inputs: Mapping[str, Any], case: Mapping[str, Any], folder: Path, *, at: datetime
    ) -> CaseOutcome:
        """Bad Evidence is an outcome; whatever else it raises is a defect of ours.

        Raises: NotVectors: an input that cannot be read.
        """


_RUNNERS = {  # folder: module with run_case, imported when a case of that folder is run
    "tdx": "attestation.tdx.cases",
    "tdx-synthetic": "attestation.tdx.cases",
    "snp": "attestation.snp.cases",
    "nvidia": "attestation.nvidia.cases",
    "jwt": "attestation.nras.cases",
    "nitro": "attestation.nitro.cases",
}
COMPOSITE_FILE = "composite.json"
_CASE_FILES = ("manifest.json", "negative.json")
_ACCEPTED_TOO = "accepted_"  # an ``any_of`` entry that says accepting is right as well
MAX_CASE_FILE_BYTES = 8 * 1024 * 1024
MAX_INPUT_BYTES = 8 * 1024 * 1024  # beyond what any parser takes
_CASE_MEMBERS = {"id": str, "inputs": dict, "verify_at": str, "expected": dict}
_VERDICTS = ("accept", "reject")
_NOT_COMPARED = frozenset({"verdict", "error_class", "any_of", "stage", "mismatched"})


class NotVectors(Exception):
    """The folder holds no vectors of this schema."""


def read_input(folder: Path, name: object) -> bytes:
    """A file that a case names; it lies in the case's folder or below, links followed.

    Raises: NotVectors: it does not, or it cannot be read.
    """
    try:
        path = (folder / str(name)).resolve()
        if not isinstance(name, str) or not path.is_relative_to(folder.resolve()):
            raise NotVectors(f"{folder}: {name!r} is not a file below it")
        if not path.is_file():  # a pipe or device would never end
            raise NotVectors(f"{folder}: no file {name!r}")
        with path.open("rb") as file:
            return file.read(MAX_INPUT_BYTES + 1)
    except (OSError, ValueError, RuntimeError) as err:  # the last is a loop of links
        raise NotVectors(f"{folder}: cannot read {name!r}") from err


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """One case that was run; ``problem`` is None when it holds."""

    folder: str
    case_id: str
    outcome: CaseOutcome
    problem: str | None


def run_vectors(root: Path) -> Iterator[CaseResult]:
    """Every case below ``root``: one folder of the schema, or a folder that holds such folders.

    Raises: NotVectors: no case files, or a folder of cases that no family serves.
    """
    if _case_files(root):
        yield from _run_folder(root)
        return
    folders = [path for path in sorted(root.iterdir()) if path.is_dir() and _case_files(path)]
    composite = root / COMPOSITE_FILE
    if not folders and not composite.is_file():
        raise NotVectors(f"{root}: no {' or '.join(_CASE_FILES)} here or one level below")
    for folder in folders:
        yield from _run_folder(folder)
    if composite.is_file():
        yield from _run_composite(composite)


def case_runner(folder_name: str) -> CaseRunner:
    """The runner for a folder of this name.

    Raises: NotVectors: no family serves it.
    """
    module = _RUNNERS.get(folder_name)
    if module is None:
        raise NotVectors(f"{folder_name}: cases of a kind that is not known here")
    return cast("CaseRunner", importlib.import_module(module).run_case)


def difference(expected: Mapping[str, Any], outcome: CaseOutcome) -> str | None:
    """What is wrong with the outcome, None when it is what was expected."""
    classes = expected.get("any_of") or [expected.get("error_class")]
    is_accept_right = expected["verdict"] == "accept" or any(
        str(name).startswith(_ACCEPTED_TOO) for name in classes
    )
    if outcome.verdict == "accept" and not is_accept_right:
        return f"accepted, want {_listed(classes)}"
    if outcome.verdict == "reject" and expected["verdict"] == "accept":
        return f"rejected with {outcome.code}, want it accepted"
    if outcome.verdict == "reject" and outcome.code not in classes:
        return f"rejected with {outcome.code}, want {_listed(classes)}"
    for name in expected.keys() - _NOT_COMPARED:
        if outcome.reported.get(name) != expected[name]:
            return f"{name} is {outcome.reported.get(name)}, want {expected[name]}"
    if "mismatched" in outcome.reported and outcome.code == expected.get("error_class"):
        got, want = outcome.reported["mismatched"], expected.get("mismatched")
        if got != want:
            return f"mismatched is {got}, want {want}"
    return None


def _case_files(folder: Path) -> list[Path]:
    return [folder / name for name in _CASE_FILES if (folder / name).is_file()]


def _run_folder(folder: Path) -> Iterator[CaseResult]:
    run_case = case_runner(folder.resolve().name)
    for file in _case_files(folder):
        for case, at in _cases(file):
            try:
                outcome = run_case(case["inputs"], case, folder, at=at)
            except KeyError as err:
                raise NotVectors(f"{file}: case {case['id']} lacks or misnames {err}") from err
            except (TypeError, ValueError, AttributeError) as err:
                said = f"{file}: case {case['id']} has a value of another form"
                raise NotVectors(said) from err
            yield CaseResult(
                folder=folder.resolve().name,
                case_id=case["id"],
                outcome=outcome,
                problem=difference(case["expected"], outcome),
            )


def _run_composite(file: Path) -> Iterator[CaseResult]:
    """A composite case holds when its session is judged right and every mutation is found."""
    run_composite_case = importlib.import_module("attestation.composite_cases").run_case
    for case, at in _cases(file):
        outcome = run_composite_case(case["inputs"], case, file.parent, at=at)
        yield CaseResult(
            folder="composite",
            case_id=case["id"],
            outcome=outcome,
            problem=outcome.reported.get("problem") or difference(case["expected"], outcome),
        )


def _cases(file: Path) -> Iterator[tuple[Mapping[str, Any], datetime]]:
    """Each case of a file with its time.  Raises: NotVectors: it does not follow the schema."""
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_CASE_FILE_BYTES + 1)
        cases = json.loads(data)["cases"] if len(data) <= MAX_CASE_FILE_BYTES else None
        if not isinstance(cases, list):
            raise NotVectors(f"{file}: no list of cases")
        for case in cases:
            if not all(isinstance(case.get(name), of) for name, of in _CASE_MEMBERS.items()):
                raise NotVectors(f"{file}: a case lacks one of {', '.join(_CASE_MEMBERS)}")
            expected = case["expected"]
            if expected.get("verdict") not in _VERDICTS:
                raise NotVectors(f"{file}: a verdict that is none of {', '.join(_VERDICTS)}")
            if not isinstance(expected.get("any_of", []), list):
                raise NotVectors(f"{file}: any_of is no list")
            at = datetime.fromisoformat(case["verify_at"])
            if at.tzinfo is None:
                raise NotVectors(f"{file}: a time without a zone")
            yield case, at
    except (OSError, ValueError, LookupError, AttributeError, TypeError, RecursionError) as err:
        raise NotVectors(f"{file}: no cases of this schema") from err


def _listed(names: list[str | None]) -> str:
    return " or ".join(str(name) for name in names)

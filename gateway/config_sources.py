"""How do flags, environment and TOML become typed settings, without losing where each came from?"""

import difflib
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.config_rules import Rule, anything
from gateway.faults import os_error_text

_PREFIX = "STARSHADE_"
# Read by clients, tests and benchmarks, never configuration of a process.
IGNORED_VARIABLES = frozenset(
    {
        "STARSHADE_API_KEY",
        "STARSHADE_LLAMA_BIN",
        "STARSHADE_OPENVINO_PYTHON",
        "STARSHADE_REQUIRE",
        "STARSHADE_TRACES",
        "STARSHADE_VECTORS",
    }
)
MAX_CONFIG_BYTES = 1024 * 1024
_MAX_SHOWN_CHARS = 200  # of a bad value
_BOOLS = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class Key:
    """What the tree says about a key beside its type: meaning, rule, and whether to show it."""

    doc: str
    check: Rule = anything
    secret: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySpec:
    """One key by its dotted name."""

    name: str
    kind: Any  # str, int, bool, Path or tuple[str, ...]
    default: object  # None: derived from other keys
    key: Key

    @property
    def variable(self) -> str:
        return _PREFIX + self.name.upper().replace(".", "__")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong with the configuration, in words that name the place to mend it."""

    key: str
    origin: str
    message: str

    def __str__(self) -> str:
        return f"{self.key} ({self.origin}): {self.message}" if self.key else self.message


class ConfigError(Exception):
    """The configuration cannot be used; `problems` holds all that is wrong with it."""

    code = "config_invalid"

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(map(str, self.problems)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A value as it was given; `base` is the folder that relative paths start from."""

    raw: object
    origin: str
    base: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """All that one source says, and what is wrong with the source itself."""

    settings: Mapping[str, Setting]
    problems: tuple[Problem, ...] = ()


def from_flags(flags: Mapping[str, object], specs: Mapping[str, KeySpec]) -> Layer:
    """Flags by dotted key; a None was not given."""
    given = {key: value for key, value in flags.items() if value is not None}
    settings, problems = {}, []
    origin = "from the command line"
    for key, value in given.items():
        settings[key] = Setting(raw=value, origin=origin, base=Path.cwd())
        if key not in specs:
            problems.append(_unknown(key, origin, specs))
    return Layer(settings=settings, problems=tuple(problems))


def from_environment(environ: Mapping[str, str], specs: Mapping[str, KeySpec]) -> Layer:
    """``STARSHADE_SECTION__KEY`` for every key; any other STARSHADE_ variable is a problem."""
    by_variable = {spec.variable: key for key, spec in specs.items()}
    settings, problems = {}, []
    for variable in sorted(environ):
        if not variable.startswith(_PREFIX) or variable in IGNORED_VARIABLES:
            continue
        origin = f"from {variable}"
        if variable in by_variable:
            setting = Setting(raw=environ[variable], origin=origin, base=Path.cwd())
            settings[by_variable[variable]] = setting
        else:
            key = variable.removeprefix(_PREFIX).lower().replace("__", ".")
            problems.append(_unknown(key, origin, specs))
    return Layer(settings=settings, problems=tuple(problems))


def from_file(path: Path | None, specs: Mapping[str, KeySpec]) -> Layer:
    """The keys of a TOML file; relative paths in it start from its own folder."""
    if path is None:
        return Layer(settings={})
    try:
        document = _read_toml(path)
    except (OSError, ValueError, RecursionError) as err:  # a list in a list in a list ..
        reason = os_error_text(err) if isinstance(err, OSError) else str(err)
        problem = Problem(key="", origin=str(path), message=f"cannot read {path}: {reason}")
        return Layer(settings={}, problems=(problem,))
    settings, problems = {}, []
    for key, value in _flatten(document, specs, prefix=""):
        origin = f"from {path}"
        settings[key] = Setting(raw=value, origin=origin, base=path.resolve().parent)
        if key not in specs:
            problems.append(_unknown(key, origin, specs))
    return Layer(settings=settings, problems=tuple(problems))


def merge(
    layers: Sequence[Layer], specs: Mapping[str, KeySpec]
) -> tuple[dict[str, Any], list[Problem]]:
    """The first layer that has a key wins; a bad value is a problem even where it lost."""
    values: dict[str, Any] = {}
    problems = [problem for layer in layers for problem in layer.problems]
    for layer in layers:
        for key, setting in layer.settings.items():
            if key not in specs:
                continue
            value, complaint = _convert(setting, specs[key])
            if complaint:
                problems.append(Problem(key=key, origin=setting.origin, message=complaint))
            else:
                values.setdefault(key, value)
    return values, problems


def _convert(setting: Setting, spec: KeySpec) -> tuple[Any, str | None]:
    try:
        value = _parse(setting.raw, spec.kind, setting.base)
    except ValueError as err:
        complaint: str | None = str(err)
        value = None
    else:
        complaint = spec.key.check(value)
    if complaint and not spec.key.secret:
        complaint = f"{complaint}, got {_shown(setting.raw)}"
    return value, complaint


def _shown(raw: object) -> str:
    try:
        text = repr(raw)
    except ValueError:  # Python writes out no number of more than 4,300 digits
        return "a number that is too long"
    return text if len(text) <= _MAX_SHOWN_CHARS else f"{text[:_MAX_SHOWN_CHARS]}.."


def _parse(raw: object, kind: Any, base: Path) -> object:
    """Raises: ValueError that says what was wanted."""
    if kind is bool:
        return _parse_bool(raw)
    if kind is int:
        return _parse_int(raw)
    if kind is Path:
        return _parse_path(raw, base)
    if kind is str:
        if isinstance(raw, str):
            return raw
        raise ValueError("want text")
    return _parse_list(raw)


def _parse_bool(raw: object) -> bool:
    if isinstance(raw, bool):
        return raw
    if isinstance(raw, str) and raw.lower() in _BOOLS:
        return _BOOLS[raw.lower()]
    raise ValueError("want true or false")


def _parse_int(raw: object) -> int:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    if isinstance(raw, str) and raw.isascii() and raw.lstrip("-").isdigit() and len(raw) <= 20:
        return int(raw)
    raise ValueError("want a whole number")


def _parse_path(raw: object, base: Path) -> Path:
    if not isinstance(raw, str | Path) or not str(raw) or "\0" in str(raw):
        raise ValueError("want a path")
    return Path(os.path.normpath(base / os.path.expanduser(raw)))


def _parse_list(raw: object) -> tuple[str, ...]:
    if isinstance(raw, str):  # the environment: one line, commas between
        return tuple(item.strip() for item in raw.split(",") if item.strip())
    if isinstance(raw, list | tuple) and all(isinstance(item, str) for item in raw):
        return tuple(raw)
    raise ValueError("want a list of texts")


def _read_toml(path: Path) -> dict[str, Any]:
    """Raises: OSError when unreadable, ValueError when too large, not UTF-8 or not TOML."""
    with path.open("rb") as stream:
        data = stream.read(MAX_CONFIG_BYTES + 1)
    if len(data) > MAX_CONFIG_BYTES:
        raise ValueError(f"larger than {MAX_CONFIG_BYTES} bytes")
    return tomllib.loads(data.decode("utf-8"))


def _flatten(
    table: Mapping[str, Any], specs: Mapping[str, KeySpec], *, prefix: str
) -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    for name, value in table.items():
        key = prefix + name
        is_section = any(known.startswith(f"{key}.") for known in specs)
        if isinstance(value, dict) and is_section:
            found += _flatten(value, specs, prefix=f"{key}.")
        else:
            found.append((key, value))
    return found


def _unknown(key: str, origin: str, specs: Mapping[str, KeySpec]) -> Problem:
    close = difflib.get_close_matches(key, specs, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return Problem(key=key, origin=origin, message=f"no such key{hint}")

"""What load does a profile describe?  TOML to a frozen tree; unknown keys are refused."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin

from loadtest.errors import ProfileError
from telemetry.metrics import Slo

PROFILES_DIR = Path(__file__).parent / "profiles"
MAX_PROFILE_BYTES = 64 * 1024
MAX_REQUESTS = 1_000_000  # rows of one run that the observatory still draws at once

ArrivalKind = Literal["poisson", "constant", "gamma"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Open-loop arrivals: when requests are meant to start, whatever the server does."""

    kind: ArrivalKind
    rate_per_s: float
    burstiness: float = 1.0  # gamma shape: below 1 burstier than Poisson, above 1 smoother


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """Seconds of arrivals; warm-up requests are kept but never counted."""

    warmup_s: float
    measure_s: float
    drain_s: float = 120.0  # how long the last requests may take before they count as failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Sizes of prompts and answers; a shared prefix exercises the prefix cache."""

    prompt_words_min: int
    prompt_words_max: int
    shared_prefix_words: int
    shared_prefixes: int
    output_tokens_min: int
    output_tokens_max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One repeatable load."""

    name: str
    description: str
    seed: int
    max_in_flight: int
    arrivals: Arrivals
    phases: Phases
    workload: Workload
    slo: Slo


_T = TypeVar("_T")
_POSITIVE = {
    "rate_per_s",
    "burstiness",
    "measure_s",
    "drain_s",
    "ttft_s",
    "tpot_s",
    "e2e_s",
    "max_in_flight",
}
_SECTIONS: Mapping[str, type] = {
    "arrivals": Arrivals,
    "phases": Phases,
    "workload": Workload,
    "slo": Slo,
}


def profile_names() -> tuple[str, ...]:
    """The shipped profiles, by name."""
    return tuple(sorted(path.stem for path in PROFILES_DIR.glob("*.toml")))


def load_profile(name_or_path: str) -> Profile:
    """A shipped profile by name, or any TOML file.

    Raises: ProfileError for an unknown name, unreadable file, unknown key or bad value.
    """
    shipped = PROFILES_DIR / f"{name_or_path}.toml"
    path = shipped if name_or_path in profile_names() else Path(name_or_path)
    try:
        with path.open("rb") as file:
            text = file.read(MAX_PROFILE_BYTES + 1)
    except OSError as err:
        known = ", ".join(profile_names())
        raise ProfileError(
            f"no profile '{name_or_path}'; shipped: {known}, or give a file"
        ) from err
    if len(text) > MAX_PROFILE_BYTES:
        raise ProfileError(f"{path} is over {MAX_PROFILE_BYTES} bytes")
    try:
        table = tomllib.loads(text.decode("utf-8"))
    except (ValueError, RecursionError) as err:  # a number of 4,301 digits, a list in a list in ..
        raise ProfileError(f"{path} is not TOML: {err}") from err
    return parse_profile(table, name=path.stem)


def parse_profile(table: Mapping[str, Any], *, name: str) -> Profile:
    """Raises: ProfileError naming the first key that is unknown, missing or out of range."""
    sections: dict[str, object] = {
        key: _parse(cls, table.get(key), key) for key, cls in _SECTIONS.items()
    }
    rest = {key: value for key, value in table.items() if key not in _SECTIONS}
    profile = _parse(Profile, {**rest, **sections, "name": name}, "profile")
    _require_consistent(profile)
    return profile


def _parse(cls: type[_T], table: object, where: str) -> _T:
    if not isinstance(table, Mapping):
        raise ProfileError(f"section [{where}] is missing")
    known = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
    if unknown := sorted(set(table) - set(known)):
        raise ProfileError(f"{where}: unknown key '{unknown[0]}'")
    values = {key: _check(key, value, known[key].type, where) for key, value in table.items()}
    try:
        return cls(**values)
    except TypeError as err:
        missing = sorted(set(known) - set(table))
        raise ProfileError(f"{where}: missing one of {', '.join(missing)}") from err


def _check(key: str, value: object, wanted: Any, where: str) -> object:
    if get_origin(wanted) is UnionType:  # a bound that may be left out
        wanted = get_args(wanted)[0]
    if get_origin(wanted) is Literal:
        if value not in get_args(wanted):
            raise ProfileError(f"{where}.{key}: one of {', '.join(get_args(wanted))}")
        return value
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, wanted) or isinstance(value, bool):
        raise ProfileError(f"{where}.{key}: wanted {wanted.__name__}")
    if isinstance(value, int | float):
        low_ok = value > 0 if key in _POSITIVE else value >= 0
        if not low_ok or value > 1e9:
            raise ProfileError(f"{where}.{key}: {value} is out of range")
    return value


def _require_consistent(profile: Profile) -> None:
    work = profile.workload
    if not 1 <= work.prompt_words_min <= work.prompt_words_max:
        raise ProfileError("workload: wanted 1 <= prompt_words_min <= prompt_words_max")
    if not 1 <= work.output_tokens_min <= work.output_tokens_max:
        raise ProfileError("workload: wanted 1 <= output_tokens_min <= output_tokens_max")
    if work.shared_prefix_words > 0 and work.shared_prefixes < 1:
        raise ProfileError("workload: shared_prefix_words needs shared_prefixes >= 1")
    total_s = profile.phases.warmup_s + profile.phases.measure_s
    if profile.arrivals.rate_per_s * total_s > MAX_REQUESTS:
        raise ProfileError(f"the run would exceed {MAX_REQUESTS} requests")

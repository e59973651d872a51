"""What may an operator configure, what does it default to, and who asked for a bad value?

One frozen tree per process, read once at start. Each key takes its value from the first of: a
command line flag, the environment (``STARSHADE_GATEWAY__PORT`` is ``gateway.port``), the TOML file
named by ``--config``, the default. Every problem is reported together, with where it came from.
"""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_type_hints

from gateway import config_rules as rules
from gateway.config_collateral import CollateralSettings
from gateway.config_engine import EngineSettings
from gateway.config_gateway import GatewaySettings, PrivacySettings
from gateway.config_quota import QuotaSettings
from gateway.config_sources import (
    ConfigError,
    Key,
    KeySpec,
    Problem,
    from_environment,
    from_file,
    from_flags,
    merge,
)
from gateway.config_worker import WorkerSettings
from gateway.paths import Paths

__all__ = [
    "CollateralSettings",
    "ConfigError",
    "EngineSettings",
    "GatewaySettings",
    "ObservatorySettings",
    "Paths",
    "PrivacySettings",
    "Problem",
    "QuotaSettings",
    "StarshadeConfig",
    "TelemetrySettings",
    "WorkerSettings",
    "describe_keys",
    "load_config",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservatorySettings:
    """The dashboard, which has no sign-in and therefore stays on the loopback interface."""

    host: Annotated[str, Key("Loopback address to listen on.", rules.loopback_host)] = "127.0.0.1"
    port: Annotated[int, Key("Port to listen on.", rules.port)] = 8444
    database_url: Annotated[
        str,
        Key(
            "Telemetry database, `sqlite` or `postgresql+psycopg`.", rules.database_url, secret=True
        ),
    ] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    """Where every process sends its spans."""

    enabled: Annotated[bool, Key("Whether spans are exported at all.")] = True
    endpoint: Annotated[str, Key("OTLP/HTTP traces endpoint.", rules.http_url, secret=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class StarshadeConfig:
    """Everything one process may read about its settings. Paths are absolute."""

    state_dir: Annotated[Path, Key("Keys, certificates, databases, sockets and logs.")]
    cache_dir: Annotated[Path, Key("Models and collateral: what can be fetched again.")]
    policy: Annotated[
        str,
        Key(
            "Appraisal policy for workers: `production`, `development` or the path of a TOML "
            "file. `starshade up` defaults to `development`.",
            rules.not_empty,
        ),
    ] = "production"
    database_url: Annotated[
        str,
        Key(
            "The gateway's own database (API keys, receipts, audit log): `sqlite` or "
            "`postgresql+psycopg`.",
            rules.database_url,
            secret=True,
        ),
    ] = field(repr=False)
    gateway: GatewaySettings
    worker: WorkerSettings
    engine: EngineSettings
    observatory: ObservatorySettings
    telemetry: TelemetrySettings

    @property
    def paths(self) -> Paths:
        return Paths(state_dir=self.state_dir, cache_dir=self.cache_dir)


def load_config(
    *,
    flags: Mapping[str, object] | None = None,
    environ: Mapping[str, str],
    file: Path | None = None,
    default_policy: Literal["production", "development"] = "production",
) -> StarshadeConfig:
    """The tree from flags (dotted key to value; None is "not given"), environment and file.

    Raises: ConfigError with every problem found in all three sources.
    """
    specs = describe_keys()
    layers = [
        from_flags(flags or {}, specs),
        from_environment(environ, specs),
        from_file(file, specs),
    ]
    values, problems = merge(layers, specs)
    if problems:
        raise ConfigError(problems)
    values.setdefault("policy", default_policy)
    values = {**_derived(values, environ), **values}
    tree: StarshadeConfig = _build(StarshadeConfig, values, prefix="")
    return tree


@cache
def describe_keys() -> Mapping[str, KeySpec]:
    """Every key by its dotted name, in the order of the tree."""
    return {spec.name: spec for spec in _walk(StarshadeConfig, prefix="")}


def _walk(tree: type, *, prefix: str) -> Iterator[KeySpec]:
    hints = get_type_hints(tree, include_extras=True)
    for item in fields(tree):
        hint = hints[item.name]
        if is_dataclass(hint):
            yield from _walk(hints[item.name], prefix=f"{prefix}{item.name}.")
        else:
            kind, key = get_args(hint)
            kind = next((one for one in get_args(kind) if NoneType in get_args(kind)), kind)
            default = None if item.default is MISSING else item.default
            yield KeySpec(name=prefix + item.name, kind=kind, default=default, key=key)


def _build(tree: type, values: Mapping[str, object], *, prefix: str) -> Any:
    hints = get_type_hints(tree)
    arguments: dict[str, object] = {}
    for item in fields(tree):
        name = prefix + item.name
        if is_dataclass(hints[item.name]):
            arguments[item.name] = _build(hints[item.name], values, prefix=f"{name}.")
        elif name in values:
            arguments[item.name] = values[name]
    return tree(**arguments)


def _derived(values: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, object]:
    """Defaults that follow from the environment or from other keys."""
    from telemetry.db.url import sqlite_url

    home = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
    state_home = environ.get("XDG_STATE_HOME") or home / ".local" / "state"
    cache_home = environ.get("XDG_CACHE_HOME") or home / ".cache"
    state_dir = values.get("state_dir", Path(state_home) / "starshade")
    paths = Paths(
        state_dir=state_dir, cache_dir=values.get("cache_dir", Path(cache_home) / "starshade")
    )
    socket = values.get("worker.socket", paths.worker_socket)
    return {
        "state_dir": paths.state_dir,
        "cache_dir": paths.cache_dir,
        "database_url": sqlite_url(paths.gateway_db),
        "gateway.workers": (f"unix:{socket}",),
        "worker.socket": socket,
        "observatory.database_url": sqlite_url(paths.telemetry_db),
        "telemetry.endpoint": _endpoint(values),
    }


def _endpoint(values: Mapping[str, Any]) -> str:
    host = values.get("observatory.host", "127.0.0.1")
    port = values.get("observatory.port", 8444)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/v1/traces"

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

_MIB = 1024 * 1024
_MAX_PORT = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacySettings:
    """What sizes and times tell whoever sees only ciphertext."""

    padding: Annotated[
        bool, Key("Whether sealed messages and the chunks of sealed streams are padded to buckets.")
    ] = True
    fixed_cadence: Annotated[
        bool,
        Key(
            "Whether every stream is sent in a chunk each 50 ms, filler when there is nothing new."
        ),
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """The HTTPS side that clients see."""

    host: Annotated[str, Key("Address to listen on.", rules.host)] = "127.0.0.1"
    port: Annotated[int, Key("Port to listen on.", rules.between(1, _MAX_PORT))] = 8443
    hostnames: Annotated[
        tuple[str, ...],
        Key(
            "Names and addresses in the server certificate, besides localhost, 127.0.0.1 and ::1.",
            rules.each(rules.host),
        ),
    ] = ("localhost", "127.0.0.1")
    client_ca_file: Annotated[
        Path | None,
        Key(
            "CA certificates in PEM. Given, a client has to show a certificate of one of them, "
            "beside its key."
        ),
    ] = None
    workers: Annotated[
        tuple[str, ...],
        Key(
            "Workers to attest and use: `unix:/absolute/path` or `http://host:port`.",
            rules.each(rules.worker_address),
            secret=True,  # what is refused may be a URL with a password
        ),
    ]
    max_body_bytes: Annotated[int, Key("Largest request body.", rules.between(1024, 64 * _MIB))] = (
        _MIB
    )
    max_concurrent_streams: Annotated[
        int,
        Key(
            "Requests in flight; further ones are refused with `overloaded`.",
            rules.between(1, 65_536),
        ),
    ] = 256
    max_open_tokens: Annotated[
        int,
        Key(
            "Estimated tokens of all requests in flight; beyond them, further ones are refused "
            "with `overloaded`. A request counts as a quarter of them at most, and one tenant's "
            "together have three quarters.",
            rules.between(1, 1_000_000_000),
        ),
    ] = 1_048_576
    request_deadline_s: Annotated[
        int, Key("Longest time one request may take.", rules.between(1, 86_400))
    ] = 600
    worker_silence_s: Annotated[
        int,
        Key(
            "How long a worker may send nothing for a request before it is asked whether it lives.",
            rules.between(1, 86_400),
        ),
    ] = 60
    drain_s: Annotated[
        int,
        Key(
            "Time that running requests get to finish when the gateway stops.",
            rules.between(0, 3600),
        ),
    ] = 30
    deny_file: Annotated[
        Path | None,
        Key("Names and digests of workers, weights and measurements that are never accepted."),
    ] = None
    receipt_days: Annotated[
        int, Key("How long signed receipts are kept.", rules.between(1, 3650))
    ] = 30
    quota: QuotaSettings
    mode: Annotated[
        str,
        Key(
            "`terminate` opens sealed requests in the gateway, `pass-through` only in the workers; "
            "keysets say which.",
            rules.one_of("terminate", "pass-through"),
        ),
    ] = "terminate"
    key_rotation_s: Annotated[
        int,
        Key(
            "How long a channel key of the gateway is the one to seal to; it opens for as long "
            "again.",
            rules.between(2, 86_400),
        ),
    ] = 300
    bare_key_list: Annotated[
        bool,
        Key(
            "Whether `/.well-known/ohttp-gateway` serves the Active key bare, for clients that do "
            "not read the list of RFC 9458."
        ),
    ] = False
    tng: Annotated[bool, Key("Whether TNG's framing of sealed requests is taken at `/`.")] = True
    privacy: PrivacySettings
    collateral: CollateralSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """The process inside the TEE."""

    id: Annotated[
        str, Key("Name of this worker, unlike that of any other worker.", rules.identifier)
    ] = "worker-0"
    socket: Annotated[
        Path,
        Key("Unix socket to listen on; others must not be able to enter its folder (mode 0700)."),
    ]
    model: Annotated[
        str,
        Key(
            "A name that `starshade models list` shows, or the path of a GGUF file or of a "
            "safetensors folder.",
            rules.not_empty,
        ),
    ] = "smollm2-135m"
    upstream: Annotated[
        str | None,
        Key(
            "A vLLM or SGLang server in this same machine that computes instead of the own engine: "
            "`http://127.0.0.1:PORT` or `unix:/absolute/path`.",
            rules.upstream_address,
            secret=True,
        ),
    ] = None
    upstream_kind: Annotated[
        str, Key("Which of the two it is: `vllm` or `sglang`.", rules.one_of("vllm", "sglang"))
    ] = "vllm"
    upstream_weights_sha256: Annotated[
        str | None,
        Key("SHA-256 of the weights that server has, for the attested keyset.", rules.sha256),
    ] = None
    threads: Annotated[
        int, Key("CPU threads of the engine; 0 uses every core.", rules.between(0, 1024))
    ] = 0
    quantize: Annotated[
        str,
        Key(
            "What float matrices of a model are packed to when it is loaded: `none`, `int8` or "
            "`int4`.",
            rules.one_of("none", "int8", "int4"),
        ),
    ] = "none"
    precision: Annotated[
        str,
        Key(
            "`int8` multiplies packed weights by activations rounded to 8 bits; `f32` keeps "
            "activations as they are, at a third of the speed.",
            rules.one_of("int8", "f32"),
        ),
    ] = "int8"
    kv_dtype: Annotated[
        str,
        Key(
            "How keys and values are kept: `bf16`, `int8` at half the memory and less precision, "
            "or `f32`.",
            rules.one_of("bf16", "int8", "f32"),
        ),
    ] = "bf16"
    key_rotation_s: Annotated[
        int,
        Key(
            "How long a channel key is the one to seal to; it opens for as long again.",
            rules.between(2, 86_400),
        ),
    ] = 300
    tee: Annotated[
        str,
        Key(
            "`fake` is simulated and never passes the production policy; `auto` takes the "
            "machine's own TEE, else the simulated one where the policy allows it.",
            rules.one_of("auto", "fake"),
        ),
    ] = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservatorySettings:
    """The dashboard, which has no sign-in and therefore stays on the loopback interface."""

    host: Annotated[str, Key("Loopback address to listen on.", rules.loopback_host)] = "127.0.0.1"
    port: Annotated[int, Key("Port to listen on.", rules.between(1, _MAX_PORT))] = 8444
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

"""What may the gateway do for its clients, and how much?"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from gateway import config_rules as rules
from gateway.config_collateral import CollateralSettings
from gateway.config_quota import QuotaSettings
from gateway.config_sources import Key

_MIB = 1024 * 1024


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
    port: Annotated[int, Key("Port to listen on.", rules.port)] = 8443
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

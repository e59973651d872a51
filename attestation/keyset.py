"""Which keys does an attested replica speak with, and until when?

The keyset is the JSON object whose digest is in REPORT_DATA (see ``binding``); a list that does
not apply is empty, never absent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, cast, get_args

from attestation.errors import MalformedEvidence
from attestation.strict_json import (
    JsonObject,
    JsonValue,
    array,
    format_time,
    integer,
    require_keys,
    sha256_hex,
    text,
    utc_time,
)

Mode = Literal["terminate", "pass-through"]

VERSION = 1
MAX_KEYS = 255  # an OHTTP key id is one byte  [RFC 9458 sec. 3.1]
MAX_WEIGHTS = 64
MAX_BUILD_FIELDS = 64
_MODES = frozenset(get_args(Mode))
_KEYSET_KEYS = frozenset(
    {
        "v",
        "not_after",
        "replica",
        "mode",
        "ohttp",
        "tls",
        "receipt",
        "policy_sha256",
        "weights_sha256",
        "build",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OhttpKey:
    """One OHTTP key: ``config_sha256`` is over the bare key_config bytes, lower-case hex."""

    key_id: int
    kem: int
    config_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsKey:
    """One TLS key: SHA-256 of its SubjectPublicKeyInfo, lower-case hex, and the host it serves."""

    spki_sha256: str
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptKey:
    """One receipt-signing key: ``x`` is the raw Ed25519 public key, lower-case hex."""

    kid: str
    alg: str
    x: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyset:
    """A well-formed keyset; being well formed says nothing about being attested."""

    not_after: datetime
    replica: str
    mode: Mode
    ohttp: tuple[OhttpKey, ...]
    tls: tuple[TlsKey, ...]
    receipt: tuple[ReceiptKey, ...]
    policy_sha256: str
    weights_sha256: tuple[str, ...]
    build: Mapping[str, str]

    @property
    def tls_pins(self) -> frozenset[bytes]:
        """SHA-256 of each SubjectPublicKeyInfo that its TLS may show."""
        return frozenset(bytes.fromhex(key.spki_sha256) for key in self.tls)


def build_keyset(
    *,
    not_after: datetime,
    replica: str,
    mode: Mode,
    ohttp: Sequence[OhttpKey],
    policy_sha256: str,
    tls: Sequence[TlsKey] = (),
    receipt: Sequence[ReceiptKey] = (),
    weights_sha256: Sequence[str] = (),
    build: Mapping[str, str] | None = None,
) -> JsonObject:
    """The keyset object as it travels; ``not_after`` is cut to whole seconds.

    Raises: MalformedEvidence("format"): a value that ``parse_keyset`` would refuse.
    """
    keyset: dict[str, JsonValue] = {
        "v": VERSION,
        "not_after": format_time(not_after),
        "replica": replica,
        "mode": mode,
        "ohttp": [
            {"key_id": key.key_id, "kem": key.kem, "config_sha256": key.config_sha256}
            for key in ohttp
        ],
        "tls": [{"spki_sha256": key.spki_sha256, "host": key.host} for key in tls],
        "receipt": [{"kid": key.kid, "alg": key.alg, "x": key.x} for key in receipt],
        "policy_sha256": policy_sha256,
        "weights_sha256": list(weights_sha256),
        "build": dict(build or {}),
    }
    parse_keyset(keyset)
    return keyset


def parse_keyset(value: JsonObject) -> Keyset:
    """The typed keyset.  Raises: MalformedEvidence("format"): unknown, missing or bad members."""
    keyset = require_keys(value, "keyset", required=_KEYSET_KEYS)
    if integer(keyset["v"], "keyset.v") != VERSION:
        raise MalformedEvidence("format", f"keyset.v: want {VERSION}")
    mode = text(keyset["mode"], "keyset.mode")
    if mode not in _MODES:
        raise MalformedEvidence("format", "keyset.mode: want terminate or pass-through")
    weights = array(keyset["weights_sha256"], "keyset.weights_sha256", max_items=MAX_WEIGHTS)
    parsed = Keyset(
        not_after=utc_time(keyset["not_after"], "keyset.not_after"),
        replica=text(keyset["replica"], "keyset.replica"),
        mode=cast("Mode", mode),
        ohttp=tuple(_ohttp_key(item) for item in _keys(keyset, "ohttp")),
        tls=tuple(_tls_key(item) for item in _keys(keyset, "tls")),
        receipt=tuple(_receipt_key(item) for item in _keys(keyset, "receipt")),
        policy_sha256=sha256_hex(keyset["policy_sha256"], "keyset.policy_sha256"),
        weights_sha256=tuple(sha256_hex(item, "keyset.weights_sha256") for item in weights),
        build=_build(keyset["build"]),
    )
    if len({key.key_id for key in parsed.ohttp}) != len(parsed.ohttp):
        raise MalformedEvidence("format", "keyset.ohttp: a key id occurs twice")
    return parsed


def _keys(keyset: JsonObject, name: str) -> Sequence[JsonValue]:
    return array(keyset[name], f"keyset.{name}", max_items=MAX_KEYS)


def _ohttp_key(value: JsonValue) -> OhttpKey:
    what = "keyset.ohttp"
    key = require_keys(value, what, required=frozenset({"key_id", "kem", "config_sha256"}))
    return OhttpKey(
        key_id=integer(key["key_id"], what, maximum=0xFF),
        kem=integer(key["kem"], what, maximum=0xFFFF),
        config_sha256=sha256_hex(key["config_sha256"], what),
    )


def _tls_key(value: JsonValue) -> TlsKey:
    key = require_keys(value, "keyset.tls", required=frozenset({"spki_sha256", "host"}))
    return TlsKey(
        spki_sha256=sha256_hex(key["spki_sha256"], "keyset.tls"),
        host=text(key["host"], "keyset.tls"),
    )


def _receipt_key(value: JsonValue) -> ReceiptKey:
    what = "keyset.receipt"
    key = require_keys(value, what, required=frozenset({"kid", "alg", "x"}))
    if key["alg"] != "Ed25519":
        raise MalformedEvidence("format", f"{what}: alg is not Ed25519")
    return ReceiptKey(
        kid=text(key["kid"], what), alg="Ed25519", x=sha256_hex(key["x"], what)
    )  # 32 bytes, like a SHA-256


def _build(value: JsonValue) -> Mapping[str, str]:
    if not isinstance(value, Mapping) or len(value) > MAX_BUILD_FIELDS:
        raise MalformedEvidence("format", f"keyset.build: not an object of {MAX_BUILD_FIELDS}")
    return {name: text(field, "keyset.build") for name, field in value.items()}

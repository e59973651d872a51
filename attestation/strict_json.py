"""Is this JSON text one that every parser reads the same way?  [RFC 7493, RFC 8259]

Outside JSON enters here only: bounded bytes and depth, no duplicate member names, no floats, no
integers beyond 2**53 - 1, no lone surrogates.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Any, NoReturn

from attestation.errors import MalformedEvidence

JsonValue = None | bool | int | str | Sequence["JsonValue"] | Mapping[str, "JsonValue"]
JsonObject = Mapping[str, JsonValue]

MAX_SAFE_INTEGER = 2**53 - 1  # RFC 7493 sec. 2.2
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}Z")


def parse_object(data: bytes, *, what: str, max_bytes: int, max_depth: int) -> JsonObject:
    """The one JSON object in ``data``.

    Raises: MalformedEvidence("format"): too large, too deep, not UTF-8, not an object, ambiguous.
    """
    value = _parse(data, what, max_bytes, max_depth)
    if not isinstance(value, dict):
        raise MalformedEvidence("format", f"{what}: not a JSON object")
    return value


def parse_array(
    data: bytes, *, what: str, max_bytes: int, max_depth: int, max_items: int
) -> Sequence[JsonValue]:
    """The one JSON array in ``data``, of at most ``max_items``.

    Raises: MalformedEvidence("format"): too large, too deep, not UTF-8, not an array, ambiguous.
    """
    return array(_parse(data, what, max_bytes, max_depth), what, max_items=max_items)


def require_keys(
    value: JsonValue, what: str, *, required: frozenset[str], optional: frozenset[str] = frozenset()
) -> JsonObject:
    """``value`` as an object that has every required key and no unknown one."""
    if not isinstance(value, Mapping):
        raise MalformedEvidence("format", f"{what}: not an object")
    if missing := required - value.keys():
        raise MalformedEvidence("format", f"{what}: missing {', '.join(sorted(missing))}")
    if unknown := value.keys() - required - optional:
        raise MalformedEvidence("format", f"{what}: {len(unknown)} unknown member(s)")
    return value


def text(value: JsonValue, what: str) -> str:
    """``value`` as a string."""
    if not isinstance(value, str):
        raise MalformedEvidence("format", f"{what}: not a string")
    return value


def integer(value: JsonValue, what: str, *, maximum: int = MAX_SAFE_INTEGER) -> int:
    """``value`` as an integer of 0..maximum; booleans are not integers."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= maximum:
        raise MalformedEvidence("format", f"{what}: not an integer of 0..{maximum}")
    return value


def array(value: JsonValue, what: str, *, max_items: int) -> Sequence[JsonValue]:
    """``value`` as a list of at most ``max_items``."""
    if not isinstance(value, list | tuple) or len(value) > max_items:
        raise MalformedEvidence("format", f"{what}: not a list of at most {max_items}")
    return value


def hex_bytes(value: JsonValue, what: str, *, num_bytes: int) -> bytes:
    """``value`` as exactly ``num_bytes`` in hex of either case."""
    digits = text(value, what)
    try:
        raw = bytes.fromhex(digits)
    except ValueError as err:
        raise MalformedEvidence("format", f"{what}: not hex") from err
    if len(raw) != num_bytes or len(digits) != 2 * num_bytes:
        raise MalformedEvidence("format", f"{what}: not {num_bytes} bytes of hex")
    return raw


def sha256_hex(value: JsonValue, what: str) -> str:
    """``value`` as a SHA-256 in lower-case hex."""
    digest = text(value, what)
    if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
        raise MalformedEvidence("format", f"{what}: not a SHA-256 in lower-case hex")
    return digest


def utc_time(value: JsonValue, what: str) -> datetime:
    """``value`` as RFC 3339 in UTC and whole seconds, the only form used here."""
    stamp = text(value, what)
    try:
        if _TIME.fullmatch(stamp) is None:
            raise ValueError(stamp)
        return datetime.fromisoformat(stamp)
    except ValueError as err:
        raise MalformedEvidence("format", f"{what}: not a UTC time in whole seconds") from err


def format_time(moment: datetime) -> str:
    """RFC 3339 in UTC, cut to whole seconds."""
    return moment.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"


def _parse(data: bytes, what: str, max_bytes: int, max_depth: int) -> JsonValue:
    if len(data) > max_bytes:
        raise MalformedEvidence("format", f"{what}: {len(data)} bytes, at most {max_bytes}")
    try:
        received = data.decode("utf-8")
        is_compact = not any(map(received.__contains__, _NOT_COMPACT))
        value: JsonValue = (_COMPACT_DECODER if is_compact else _DECODER).decode(received)
        if "\\u" in received:  # nothing else can say a lone surrogate, and no UTF-8 can hold one
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as err:
        raise MalformedEvidence("format", f"{what}: not strict JSON") from err
    num_members = _require_plain(value, what, max_depth)
    if is_compact and num_members != received.count('":'):
        _require_unique_names(received, what)
    return value


def _require_unique_names(received: str, what: str) -> None:
    try:
        _DECODER.decode(received)
    except ValueError as err:
        raise MalformedEvidence("format", f"{what}: duplicate member name") from err


def _unique(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("duplicate member name")
    return members


def _refuse_float(_: str) -> NoReturn:
    raise ValueError("not an integer")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_float=_refuse_float, parse_constant=_refuse_float
)
# In text without escapes, and without white space after a quote, every member's name ends in quote
# and colon: where these are no more than the members, no name occurs twice, and nothing need be
# called for each object to know it. A string that begins with a colon counts as well: more of them
# only mean that every object is looked at.
_NOT_COMPACT = ("\\", "\n", "\r", "\t", '" ')
_COMPACT_DECODER = json.JSONDecoder(parse_float=_refuse_float, parse_constant=_refuse_float)


def _require_plain(value: JsonValue, what: str, max_depth: int) -> int:
    """The number of members of all objects in ``value``.

    Level by level: ``values`` are all that are nested equally deep.
    """
    values: list[Any] = [value]
    num_members = 0
    for _ in range(max_depth + 1):
        objects: list[dict[str, Any]] = []
        arrays: list[list[Any]] = []
        for each in values:
            kind = type(each)
            if kind is dict:
                objects.append(each)
            elif kind is int:
                if not -MAX_SAFE_INTEGER <= each <= MAX_SAFE_INTEGER:
                    raise MalformedEvidence("format", f"{what}: integer beyond 2**53 - 1")
            elif kind is list:
                arrays.append(each)
        values = list(chain.from_iterable(map(dict.values, objects)))
        num_members += len(values)
        values += chain.from_iterable(arrays)
        if not values:
            return num_members
    raise MalformedEvidence("format", f"{what}: nested too deeply")

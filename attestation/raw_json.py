"""Which bytes of a JSON object are one member's value?  As received, for digests over them."""

import json

from attestation.errors import MalformedEvidence

_SPACE = " \t\r\n"


def member_bytes(data: bytes, name: str, *, what: str) -> bytes | None:
    """The bytes of the top-level member ``name``, None when there is none.

    ``data`` must have passed ``strict_json.parse_object``, so it is one object without duplicates.

    Raises: MalformedEvidence("format"): it has not.
    """
    try:
        return _find(data.decode("utf-8"), name)
    except (ValueError, IndexError, RecursionError) as err:
        raise MalformedEvidence("format", f"{what}: not a JSON object") from err


def _find(text: str, name: str) -> bytes | None:
    decoder = json.JSONDecoder()
    at = _past(text, _skip(text, 0), "{")
    while text[at] != "}":
        key, at = decoder.raw_decode(text, at)
        start = _skip(text, _past(text, _skip(text, at), ":"))
        _, end = decoder.raw_decode(text, start)
        if key == name:
            return text[start:end].encode("utf-8")
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return None


def _skip(text: str, at: int) -> int:
    while text[at] in _SPACE:
        at += 1
    return at


def _past(text: str, at: int, mark: str) -> int:
    if text[at] != mark:
        raise ValueError(f"want {mark}")
    return at + 1

"""Is this JSON what it seems?  One object, no name twice, no numbers beyond JSON's."""

import json
from typing import NoReturn

from runtime.weights.errors import MalformedModelError


def parse_object(data: bytes, *, what: str) -> dict[str, object]:
    """The object in ``data``, whose length the caller has bounded. Raises: MalformedModelError."""
    try:
        document = json.loads(
            str(data, "utf-8"), object_pairs_hook=_members, parse_constant=_refuse_constant
        )
    except MalformedModelError as err:
        raise MalformedModelError(f"{what}: {err}") from err
    except (ValueError, RecursionError) as err:  # ValueError: JSON, UTF-8, or too many digits
        raise MalformedModelError(f"{what} is not JSON") from err
    if not isinstance(document, dict):
        raise MalformedModelError(f"{what} is no JSON object")
    return document


def _members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise MalformedModelError("a name appears twice")
    return members


def _refuse_constant(text: str) -> NoReturn:
    raise MalformedModelError(f"{text} is no JSON number")

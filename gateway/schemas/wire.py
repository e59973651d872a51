"""What do all wire models have in common, and how is what they refuse told?

A refusal names the parameter and the kind of mistake, never the value.
"""

import json
import math
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, NoReturn, TypeAlias, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from gateway.problems import GatewayError

MAX_MODEL_NAME_CHARS: Final = 128
MAX_DEPTH: Final = 64  # JSON schemas of tools rarely exceed 10
MAX_NUMBER_CHARS: Final = 308  # of an integer: what a double can hold [RFC 8785 sec. 3.2.2.3]
MAX_EXACT: Final = 1 << 53  # up to here a double is the integer that was written
_MAX_SHOWN_PARAM_CHARS: Final = 96
_DISCRIMINATORS: Final = ("role", "type")  # what tells the branches of our unions apart
_BRANCHES: Final = frozenset({"str", "constrained-str", "int", "nullable"})
_KEY: Final = "[key]"  # behind the name of a member whose name itself is wrong
_BRANCH_STARTS: Final = ("list[", "function-", "tagged-union[", "literal[")

_OBJECT: Final = "Input should be an object"
_OWN_WORDS: Final = MappingProxyType(
    {
        "dict_type": _OBJECT,
        "model_type": _OBJECT,
        "model_attributes_type": _OBJECT,
        "list_type": "Input should be an array",
    }
)  # where pydantic speaks of Python

IGNORED_PARAMETERS: Final = frozenset({"user", "safety_identifier", "prompt_cache_key"})
"""Labels of the end user and hints for a cache that the credential salts: accepted for
compatibility, never stored or forwarded."""


def _require_unicode(text: str) -> str:
    """JSON can escape half a surrogate pair [RFC 8259 sec. 8.2]; no encoding has bytes for it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PydanticCustomError("lone_surrogate", "String has a lone surrogate") from None
    return text


def _require_unicode_within(value: dict[str, Any]) -> dict[str, Any]:
    _require_unicode(json.dumps(value, ensure_ascii=False))
    return value


Text = Annotated[str, AfterValidator(_require_unicode)]
JsonObject = Annotated[dict[str, Any], AfterValidator(_require_unicode_within)]
"""Free JSON of a client: a schema, or what is passed over."""
ModelName = Annotated[str, Field(min_length=1, max_length=MAX_MODEL_NAME_CHARS)]


class Wire(BaseModel):
    """Strict, closed, frozen; its errors do not quote what was sent."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True
    )


WireT = TypeVar("WireT", bound=Wire)
Tags: TypeAlias = Mapping[str, Collection[str]]


def parse_object(body: bytes) -> dict[str, Any]:
    """Raises: GatewayError `invalid_json`, `invalid_type`. The parser's own error, which can quote
    the body, is not chained.
    """
    try:
        value = json.loads(
            body, parse_constant=_refuse_constant, parse_float=_number, parse_int=_integer
        )
    except (ValueError, RecursionError):
        raise GatewayError("invalid_json", "The request body is not valid JSON.") from None
    if not isinstance(value, dict):
        raise GatewayError("invalid_type", "The request body must be a JSON object.")
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH and _is_deeper(value, MAX_DEPTH):
        raise GatewayError("invalid_value", f"The body is nested more than {MAX_DEPTH} deep.")
    return value


def validated(
    model: type[WireT],
    value: Mapping[str, Any],
    *,
    neutral: Mapping[str, tuple[Any, ...]],
    tags: Tags = MappingProxyType({}),
) -> WireT:
    """`value` as a `model`. `neutral`: what may be said of parameters that it does not know;
    `tags`: which members are unions, and the names of their branches.

    Raises: GatewayError `invalid_type`, `invalid_value`, `missing_required_parameter`,
    `unsupported_parameter`; `param` names the place.
    """
    known = {name: item for name, item in value.items() if _is_kept(model, neutral, name, item)}
    try:
        return model.model_validate(known)
    except ValidationError as err:
        failure = _first_failure(err, tags)
    raise failure


def compact_json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _is_kept(
    model: type[Wire], neutral: Mapping[str, tuple[Any, ...]], name: str, item: Any
) -> bool:
    field = model.model_fields.get(name)
    if field is not None:
        return item is not None or field.is_required()
    if item is None or name in IGNORED_PARAMETERS:
        return False
    values = neutral.get(name, ())
    if any(type(item) is type(accepted) and item == accepted for accepted in values):
        return False
    shown = _shown(name)
    raise GatewayError(
        "unsupported_parameter", f"Unsupported parameter: '{shown}' (or its value).", param=shown
    )


def _first_failure(err: ValidationError, tags: Tags) -> GatewayError:
    """The most telling of pydantic's findings; inputs are never part of the message."""
    details = err.errors(include_url=False, include_context=False, include_input=False)
    detail = max(details, key=lambda found: (not _is_type(found["type"]), len(found["loc"])))
    if details[0]["type"] == "missing":
        detail = details[0]
    wrong_kinds = (found for found in details if _is_wrong_kind(found["type"], found["loc"]))
    detail = next(wrong_kinds, detail)  # what else is missing follows from it
    kind = str(detail["type"])
    words = _OWN_WORDS.get(kind, detail["msg"])
    param = _param_path(_without_key(kind, detail["loc"]), tags)
    if kind == "missing":
        return _missing(param)
    if kind == "extra_forbidden":
        return GatewayError(
            "unsupported_parameter", f"Unsupported parameter: '{param}'.", param=param
        )
    if kind.startswith("union_tag"):
        name = next((n for n in _DISCRIMINATORS if f"'{n}'" in detail["msg"]), "type")
        if kind == "union_tag_not_found":
            return _missing(f"{param}.{name}")
        code = "invalid_value" if name == "role" else "unsupported_parameter"
        param = f"{param}.{name}"
        return GatewayError(code, f"Unsupported value for '{param}'.", param=param)
    if kind == "literal_error" and param.endswith(".type"):
        return GatewayError(
            "unsupported_parameter",
            f"Unsupported value for '{param}': {detail['msg']}.",
            param=param,
        )
    code = "invalid_type" if _is_type(kind) else "invalid_value"
    return GatewayError(code, f"Invalid '{param}': {words}.", param=param)


def _missing(param: str) -> GatewayError:
    return GatewayError(
        "missing_required_parameter", f"Missing required parameter: '{param}'.", param=param
    )


def _is_wrong_kind(kind: str, loc: tuple[int | str, ...]) -> bool:
    return kind.startswith("union_tag") or (kind == "literal_error" and loc[-1] == "type")


def _is_type(kind: str) -> bool:
    return kind.endswith("_type")


def _without_key(kind: str, loc: tuple[int | str, ...]) -> tuple[int | str, ...]:
    is_key = loc[-1:] == (_KEY,) and len(loc) > 2 and kind != "extra_forbidden"
    return loc[:-1] if is_key else loc


def _param_path(loc: tuple[int | str, ...], tags: Tags) -> str:
    """`messages[0].content`: without the names that pydantic adds for union branches."""
    path, member, is_tagged = "", "", False
    for item in loc:
        if isinstance(item, int):
            path += f"[{item}]"
        elif item in tags.get(member, ()) and not is_tagged:
            is_tagged = True
        elif item not in _BRANCHES and not item.startswith(_BRANCH_STARTS):
            path += f".{item}" if path else item
            member, is_tagged = item, False
    return _shown(path)


def _shown(name: str) -> str:
    printable = "".join(char for char in name if char.isprintable())
    return printable[:_MAX_SHOWN_PARAM_CHARS]


def _number(text: str) -> int | float:
    """JSON has one kind of number: `16.0` is an integer, as `16` is."""
    value = float(text)
    if math.isinf(value):
        raise ValueError("a number is too large")
    return int(value) if value.is_integer() and abs(value) < MAX_EXACT else value


def _integer(text: str) -> int:
    if len(text) > MAX_NUMBER_CHARS:
        raise ValueError("a number is too large")
    return int(text)


def _is_deeper(value: Any, depth: int) -> bool:
    """Whether objects and lists lie in each other more than `depth` times."""
    layer = [value]
    for _ in range(depth):
        layer = [
            item
            for outer in layer
            for item in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(item, dict | list)
        ]
    return bool(layer)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError("NaN and Infinity are not JSON")

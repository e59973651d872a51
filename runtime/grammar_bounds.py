"""How much does a grammar write out to, at the least?  Texts and multiplied repeats, uncompiled.

What must follow is walked byte by byte in one mask, some 2 us each, and no limit of ``llguidance``
ends that walk before 100,000: so ``((a{90}){100}){100}`` would take a second of a core. The length
is that of the longest stretch an expression cannot do without, of the least counts (``a{3,9}`` is
3); classes count like letters. What is read otherwise than here, such as the comments of ``(?x)``,
is taken for the product of all its counts. Schemas: the patterns, names, and values in them.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from runtime.errors import InvalidGrammar

MAX_WRITTEN: Final = 10_000  # characters, of texts bytes; 10 to 20 ms for the mask that walks them
_COUNT: Final = re.compile(r"\{\s*([0-9]*)\s*(?:,\s*[0-9]*\s*)?\}")
_ENOUGH: Final = MAX_WRITTEN + 1  # no need to count on
_LEAST: Final = re.compile(r"\{\s*([0-9]+)")
_VERBOSE: Final = re.compile(r"\(\?[A-Za-z]*x")
_GROUP_HEAD: Final = re.compile(r"\?(?:P?<[^>]*>|[A-Za-z-]*:?)")
_ESCAPED: Final = re.compile(r"\\(?:[pPxuU]\{[^}]*\}|.)", re.DOTALL)
_EXPRESSION_KEYS: Final = frozenset(
    {"pattern", "whitespace_pattern", "item_separator", "key_separator"}
)
_VALUE_KEYS: Final = frozenset({"const", "enum"})
_SCHEMA_IN_LARK: Final = re.compile(r"%json\s*")


def require_bounded_expression(expression: str) -> None:
    """Raises: InvalidGrammar."""
    num_written = written_chars(expression)
    if num_written > MAX_WRITTEN:
        raise InvalidGrammar(
            f"with its repeats multiplied the expression is more than {MAX_WRITTEN} characters long"
        )


def require_bounded_text(text: str) -> None:
    """Raises: InvalidGrammar."""
    if len(text.encode("utf-8", "surrogatepass")) > MAX_WRITTEN:
        raise InvalidGrammar(f"a text of the grammar is more than {MAX_WRITTEN} bytes long")


def require_bounded_schema(source: str) -> None:
    """Raises: InvalidGrammar."""
    try:
        schema = json.loads(source)
    except (ValueError, RecursionError):
        raise InvalidGrammar("the JSON schema is no JSON, or nested too deeply") from None
    _require_bounded_members(schema)


def require_bounded_lark(source: str) -> None:
    """Of the schemas in it; the rest is not a client's. Raises: InvalidGrammar.

    What follows the word is looked at each time: within a text it may read as JSON that goes on
    into the next schema.
    """
    decoder = json.JSONDecoder()
    for match in _SCHEMA_IN_LARK.finditer(source):
        try:
            schema, _ = decoder.raw_decode(source, match.end())
        except ValueError:
            continue
        except RecursionError:
            raise InvalidGrammar("the JSON schema is nested too deeply") from None
        _require_bounded_members(schema)


@dataclass(slots=True)
class _Level:
    """One pair of brackets: its longest alternative, the current one, what was read last."""

    longest: int = 0
    before: int = 0
    last: int = 0

    def push(self, num_chars: int) -> None:
        self.before += self.last
        self.last = num_chars

    def next_alternative(self) -> None:
        self.longest = max(self.longest, self.before + self.last)
        self.before = self.last = 0

    def close(self) -> int:
        self.next_alternative()
        return self.longest


def written_chars(expression: str) -> int:
    """At the least, of Rust's syntax; too many rather than too few."""
    if _VERBOSE.search(expression) is not None:
        return _product(expression)
    levels = [_Level()]
    at = 0
    while at < len(expression):
        char, level = expression[at], levels[-1]
        if char == "\\":
            match = _ESCAPED.match(expression, at)
            at = match.end() if match is not None else at + 1
            level.push(1)
        elif char == "[":
            at = _class_end(expression, at)
            if at < 0:
                return _product(expression)
            level.push(1)
        elif char == "{" and (match := _COUNT.match(expression, at)) is not None:
            level.last = min(level.last * _times(match[1]), _ENOUGH)
            at = match.end()
        else:
            at += 1
            if char == "(":
                levels.append(_Level())
                head = _GROUP_HEAD.match(expression, at)
                at = head.end() if head is not None else at
            elif char == ")" and len(levels) > 1:
                levels[-2].push(levels.pop().close())
            elif char == "|":
                level.next_alternative()
            elif char not in "*+?":
                level.push(1)
    return max(level.close() for level in levels)


def _class_end(expression: str, start: int) -> int:
    """Where the class that begins at ``start`` is over, or -1; classes nest."""
    depth, at = 0, start
    while at < len(expression):
        char = expression[at]
        at += 1
        if char == "\\":
            at += 1
        elif char == "[":
            depth += 1
            at += expression.startswith("^", at)
            at += expression.startswith("]", at)
        elif char == "]":
            depth -= 1
            if not depth:
                return at
    return -1


def _product(expression: str) -> int:
    product = len(expression)
    for count in _LEAST.findall(expression):
        product = min(product * _times(count), _ENOUGH)
    return product


def _times(digits: str) -> int:
    return max(1, int(digits.lstrip("0")[:9] or 0))


def _require_bounded_members(schema: Any) -> None:
    """Names and values as JSON spells them."""
    pending = [(schema, False)]
    while pending:
        value, is_written = pending.pop()
        if isinstance(value, str) and is_written:
            require_bounded_text(json.dumps(value, ensure_ascii=False))
        elif isinstance(value, list):
            pending += [(member, is_written) for member in value]
        elif isinstance(value, dict):
            patterns = value.get("patternProperties")
            if isinstance(patterns, dict):
                for expression in patterns:
                    require_bounded_expression(expression)
            for key, member in value.items():
                require_bounded_text(json.dumps(key, ensure_ascii=False))
                if key in _EXPRESSION_KEYS and isinstance(member, str):
                    require_bounded_expression(member)
                pending.append((member, is_written or key in _VALUE_KEYS))

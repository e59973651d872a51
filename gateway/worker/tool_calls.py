"""Where in an answer are tool calls?  Read as the text comes, JSON between `<tool_call>` tags.

The form is that of [Hermes Function Calling], which Qwen2.5 and Qwen3 have too. Arguments are
passed on while they are written. What is no call of an offered tool stays text, tags and all.
"""

import json
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

OPEN, CLOSE = "<tool_call>", "</tool_call>"
MAX_CALLS: Final = 128  # of one answer
MAX_NAME_PART_CHARS: Final = 1024  # of it, where the name stands
MAX_HEAD_CHARS: Final = 1 << 14  # of a call whose arguments have not begun
_HEAD: Final = re.compile(
    r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)'
)


@dataclass(frozen=True, slots=True)
class Said:
    """Text outside of calls."""

    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class CallBegun:
    index: int
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """The next part of a call's arguments, which are JSON as the model writes it."""

    index: int
    text: str = field(repr=False)


Piece: TypeAlias = Said | CallBegun | CallArguments


class ToolCallParser:
    """One answer's text in, its pieces out; `flush` once at the end."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._state = self._outside
        self._pending = ""
        self._scan = _ObjectEnd()
        self.num_calls = 0

    def feed(self, text: str) -> list[Piece]:
        self._pending += text
        pieces: list[Piece] = []
        while self._state(pieces):
            pass
        return pieces

    def flush(self) -> list[Piece]:
        """What is left when the answer is over, be it cut short."""
        left, self._pending = self._pending, ""
        if self._state == self._outside:
            return [Said(left)] if left and (left.strip() or not self.num_calls) else []
        if self._state == self._inside_head:
            return self._whole_calls(left) or [Said(OPEN + left)]
        return []

    # Each state takes what it can from `_pending`; True when another has to look at the rest.

    def _outside(self, pieces: list[Piece]) -> bool:
        start = self._pending.find(OPEN)
        if start >= 0:
            self._say(self._pending[:start].rstrip(), pieces)
            self._pending = self._pending[start + len(OPEN) :]
            self._state = self._inside_head
            return True
        kept = _num_kept(self._pending)
        self._say(self._pending[: len(self._pending) - kept], pieces)
        self._pending = self._pending[len(self._pending) - kept :]
        return False

    def _say(self, text: str, pieces: list[Piece]) -> None:
        if text and (text.strip() or not self.num_calls):
            pieces.append(Said(text))

    def _inside_head(self, pieces: list[Piece]) -> bool:
        head = _HEAD.match(self._pending, 0, MAX_NAME_PART_CHARS)
        name = None if head is None else _known(head[1], self._names)
        if head is not None and name is not None and self.num_calls < MAX_CALLS:
            self._pending = self._pending[head.end() :]
            pieces.append(CallBegun(self.num_calls, name))
            self.num_calls += 1
            self._scan = _ObjectEnd()
            self._state = self._inside_arguments
            return True
        inside, close, rest = self._pending.partition(CLOSE)
        if not close and len(self._pending) <= MAX_HEAD_CHARS:
            return False
        self._pending = rest
        pieces += self._whole_calls(inside) or [Said(OPEN + inside + close)]
        self._state = self._outside
        return True

    def _inside_arguments(self, pieces: list[Piece]) -> bool:
        end = self._scan.find(self._pending)
        text = self._pending if end is None else self._pending[:end]
        self._pending = "" if end is None else self._pending[end:]
        if text:
            pieces.append(CallArguments(self.num_calls - 1, text))
        if end is None:
            return False
        self._state = self._inside_tail
        return True

    def _inside_tail(self, pieces: list[Piece]) -> bool:
        end = self._pending.find(CLOSE)
        if end < 0:
            self._pending = self._pending[-len(CLOSE) + 1 :]
            return False
        self._pending = self._pending[end + len(CLOSE) :]
        self._state = self._outside
        return True

    def _whole_calls(self, text: str) -> list[Piece]:
        """The calls that `text` is, in whatever order their members stand; none if it is not."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return []
        calls = [
            _call(item, self._names) for item in (value if isinstance(value, list) else [value])
        ]
        found = [call for call in calls if call is not None]
        if not found or len(found) < len(calls) or self.num_calls + len(found) > MAX_CALLS:
            return []
        pieces: list[Piece] = []
        for name, arguments in found:
            pieces += [CallBegun(self.num_calls, name), CallArguments(self.num_calls, arguments)]
            self.num_calls += 1
        return pieces


class _ObjectEnd:
    """Finds the end of a JSON object that comes in parts."""

    def __init__(self) -> None:
        self._depth = 0
        self._is_string = self._is_escaped = False

    def find(self, text: str) -> int | None:
        """The index behind the end; also where a tag shows that the object never ends."""
        for at, char in enumerate(text):
            if self._is_string:
                if self._is_escaped:
                    self._is_escaped = False
                elif char == "\\":
                    self._is_escaped = True
                elif char == '"':
                    self._is_string = False
            elif char == '"':
                self._is_string = True
            elif char in "{[":
                self._depth += 1
            elif char in "}]":
                self._depth -= 1
                if not self._depth:
                    return at + 1
            elif char == "<":
                return at
        return None


def _num_kept(text: str) -> int:
    """How many of the last characters may belong to a call: white space, a tag begun."""
    for length in range(min(len(OPEN) - 1, len(text)), 0, -1):
        if OPEN.startswith(text[-length:]):
            text = text[:-length]
            break
    else:
        length = 0
    return length + len(text) - len(text.rstrip())


def _known(quoted: str, names: Collection[str]) -> str | None:
    try:
        name = json.loads(quoted)
    except ValueError:
        return None
    return name if name in names else None


def _call(value: Any, names: Collection[str]) -> tuple[str, str] | None:
    if not isinstance(value, dict) or value.get("name") not in names:
        return None
    arguments = value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        return value["name"], arguments
    return value["name"], json.dumps(arguments, ensure_ascii=False)

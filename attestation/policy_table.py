"""What does one TOML table of a policy say?  Read key by key, every problem collected.

A key that is asked for must be there, have its one form and be not empty; a key that nobody asked
for is unknown. So nothing is accepted by leaving it out, and all problems are told together.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

from attestation.strict_json import MAX_SAFE_INTEGER

_MAX_SHOWN_CHARS = 128
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


@dataclass(slots=True)
class PolicyTable:
    """One table being read; ``problems`` is shared by all tables of a policy.

    Readers note a problem and return a harmless stand-in, which is never used: a policy with
    problems is refused as a whole. Call ``finish`` last: it finds the unknown keys.
    """

    path: str
    values: Mapping[str, object]
    problems: list[str]
    used: set[str] = field(default_factory=set)

    def table(self, key: str) -> "PolicyTable":
        """A table inside this one; its problems are named with its path."""
        value = self._get(key)
        if not isinstance(value, Mapping):
            if value is not None:
                self.problem(key, "want a table")
            value = {}
        return PolicyTable(f"{self.path}{key}.", value, self.problems)

    def choice(self, key: str, choices: tuple[str, ...]) -> str:
        """One word of a closed set."""
        value = self._get(key)
        if value in choices:
            return str(value)
        if value is not None:
            self.problem(key, f"want one of {', '.join(choices)}")
        return choices[0]

    def name(self, key: str) -> str:
        """A short lower-case name."""
        value = self._get(key)
        if isinstance(value, str) and _NAME.fullmatch(value):
            return value
        if value is not None:
            self.problem(key, "want a short lower-case name")
        return ""

    def number(self, key: str, *, minimum: int = 1, maximum: int = MAX_SAFE_INTEGER) -> int:
        """An integer of ``minimum`` to ``maximum``."""
        value = self._get(key)
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if is_number and minimum <= cast("int", value) <= maximum:
            return cast("int", value)
        if value is not None:
            at_most = "" if maximum == MAX_SAFE_INTEGER else f" and at most {maximum}"
            self.problem(key, f"want a number of at least {minimum}{at_most}")
        return minimum

    def hex_bytes(self, key: str, num_bytes: int) -> bytes:
        """Exactly ``num_bytes`` in lower-case hex."""
        value = self._get(key)
        if isinstance(value, str) and in_hex(num_bytes)(value):
            return bytes.fromhex(value)
        if value is not None:
            self.problem(key, f"want {num_bytes} bytes in lower-case hex")
        return bytes(num_bytes)

    def names(
        self, key: str, is_known: Callable[[str], bool], *, may_be_empty: bool = False
    ) -> frozenset[str]:
        """A list of strings that ``is_known`` takes; empty only where that is stricter."""
        value = self._get(key)
        if value is None:
            return frozenset()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.problem(key, "want a list of strings")
            return frozenset()
        if not value and not may_be_empty:
            self.problem(key, "empty, so nothing could ever be accepted")
        for item in value:
            if not is_known(item):
                self.problem(key, f"{_shown(item)} is not a value it takes")
        return frozenset(value)

    def has(self, key: str) -> bool:
        """The key is there, for keys that may be left out because that changes nothing."""
        return key in self.values

    def problem(self, key: str, text: str) -> None:
        """Notes what is wrong with ``key``."""
        self.problems.append(f"{self.path}{key}: {text}")

    def finish(self) -> None:
        """Every key that no reader asked for is a problem."""
        self.problems.extend(
            f"{self.path}{key if _NAME.fullmatch(key) else _shown(key)}: unknown key"
            for key in sorted(self.values.keys() - self.used)
        )

    def _get(self, key: str) -> object:
        self.used.add(key)
        if key not in self.values:
            self.problem(key, "missing")
        return self.values.get(key)


def in_form(form: re.Pattern[str]) -> Callable[[str], bool]:
    """Takes a string that is ``form`` from end to end."""
    return lambda value: form.fullmatch(value) is not None


def in_hex(num_bytes: int) -> Callable[[str], bool]:
    """Takes ``num_bytes`` in lower-case hex."""
    return in_form(re.compile(rf"[0-9a-f]{{{2 * num_bytes}}}"))


def _shown(value: str) -> str:
    """Quoted, printable and short: a reference file may hold anything."""
    is_long = len(value) > _MAX_SHOWN_CHARS
    return ascii(value[:_MAX_SHOWN_CHARS]) + "..." * is_long

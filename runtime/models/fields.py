"""What may a model's metadata or config.json say?  Typed, bounded access to untrusted values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TypeGuard

from runtime.weights.errors import MalformedModelError, ModelLimitError, UnsupportedModelError

MAX_NUMBER = 1e12  # rotary bases reach 1e8, scaling factors 1e2


@dataclass(frozen=True, slots=True)
class Fields:
    """Values by name; an absent one and a null one are alike. Messages carry names, not values."""

    values: Mapping[str, object]
    prefix: str = ""

    def get(self, name: str) -> object:
        return self.values.get(self.prefix + name)

    def count(self, name: str, limit: int, *, default: int | None = None) -> int:
        """A positive integer. Raises: MalformedModelError, ModelLimitError."""
        value = self.get(name)
        value = default if value is None else value
        if type(value) is not int or value < 1:
            raise MalformedModelError(f"{self.prefix}{name} is no positive count")
        if value > limit:
            raise ModelLimitError(f"{self.prefix}{name} is more than {limit}")
        return value

    def count_or_zero(self, name: str, limit: int) -> int:
        """As ``count``, but absent and 0 are 0."""
        return 0 if self.get(name) in (None, 0) else self.count(name, limit)

    def positive(self, name: str, *, default: float | None = None) -> float:
        """A positive number. Raises: MalformedModelError."""
        value = self.get(name)
        value = default if value is None else value
        if not is_number(value) or not 0 < value <= MAX_NUMBER:
            raise MalformedModelError(f"{self.prefix}{name} is no positive number in range")
        return float(value)

    def positive_or_zero(self, name: str, *, default: float = 0.0) -> float:
        """As ``positive``, but 0 is 0."""
        if self.get(name) is None:
            return default
        return 0.0 if self.get(name) == 0 else self.positive(name)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Raises: MalformedModelError."""
        value = self.get(name)
        if value is not None and not isinstance(value, bool):
            raise MalformedModelError(f"{self.prefix}{name} is no boolean")
        return default if value is None else value

    def text(self, name: str, *, default: str | None = None) -> str:
        """Raises: MalformedModelError."""
        value = self.get(name)
        value = default if value is None else value
        if not isinstance(value, str):
            raise MalformedModelError(f"{self.prefix}{name} is no text")
        return value

    def table(self, name: str) -> "Fields":
        """A nested object; empty when absent. Raises: MalformedModelError."""
        value = self.get(name)
        if value is not None and not isinstance(value, Mapping):
            raise MalformedModelError(f"{self.prefix}{name} is no object")
        return Fields(value or {}, "")

    def items(self, name: str, length: int) -> Sequence[object] | None:
        """A list of ``length``, None when absent. Raises: MalformedModelError."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != length:
            raise MalformedModelError(f"{self.prefix}{name} is no list of {length}")
        return value

    def numbers(self, name: str, length: int) -> list[float] | None:
        """A list of ``length`` positive numbers. Raises: MalformedModelError."""
        items = self.items(name, length)
        if items is None:
            return None
        numbers = [float(item) for item in items if is_number(item) and 0 < item <= MAX_NUMBER]
        if len(numbers) != length:
            raise MalformedModelError(f"{self.prefix}{name} holds no positive numbers")
        return numbers

    def require_unset(self, *names: str) -> None:
        """What would change the computation and is not run. Raises: UnsupportedModelError."""
        for name in names:
            if self.get(name) not in (None, False, "none", 0):
                raise UnsupportedModelError(f"{self.prefix}{name} is set")


def is_number(value: object) -> TypeGuard[int | float]:
    """A finite number; booleans are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return isfinite(value)
    except OverflowError:  # an integer beyond every float
        return False

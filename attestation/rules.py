"""What is one question of an AppraisalPolicy?  Verified claims in, nothing or an error out."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Generic, Protocol, TypeVar

from attestation.errors import PolicyCode, PolicyViolation
from attestation.policy_table import PolicyTable, in_hex

ClaimsT_contra = TypeVar("ClaimsT_contra", contravariant=True)
Observed = Iterator[tuple[str | None, str]]  # a value, and what to tell when it is refused


class Rule(Protocol[ClaimsT_contra]):
    """One question about the claims of one family; each family's ``rules.py`` has its own."""

    @property
    def name(self) -> str:
        """The name of its Check."""

    @property
    def passed(self) -> str:
        """What to tell people when it holds."""

    def require(self, claims: ClaimsT_contra) -> None:
        """Raises: PolicyViolation."""


class EndingRule(ABC, Generic[ClaimsT_contra]):
    """A rule about age: time alone makes it refuse what it passes now."""

    __slots__ = ()

    @abstractmethod
    def end(self, claims: ClaimsT_contra) -> datetime:
        """Until when it passes these claims, which ``require`` has passed."""


class LenientRule(ABC):
    """A rule that may take less than genuine and current, which the verdict then warns of."""

    __slots__ = ()

    @abstractmethod
    def conceded(self) -> tuple[str, ...]:
        """What it takes with a warning, in words; empty: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValuesAllowed(ABC, Generic[ClaimsT_contra]):
    """Each value that ``observe`` finds is one of ``allowed``, otherwise it is refused as ``code``.

    ``allowed`` is never empty where it comes from a policy; empty, it lets nothing pass.
    """

    allowed: frozenset[str]
    name: str
    passed: str
    code: PolicyCode

    @abstractmethod
    def observe(self, claims: ClaimsT_contra) -> Observed:
        """Every value, None where the claims name none, with what to tell if it is refused."""

    def require(self, claims: ClaimsT_contra) -> None:
        """Raises: PolicyViolation(``code``)."""
        for value, refusal in self.observe(claims):
            if value not in self.allowed:
                raise PolicyViolation(self.code, refusal)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistersExpected(ABC, Generic[ClaimsT_contra]):
    """What was launched is one of the reference values; ``values`` maps a register to those."""

    values: tuple[tuple[str, frozenset[str]], ...]
    name: str = "measurements"
    passed: str = "every measurement is one of its reference values"

    @abstractmethod
    def observe(self, claims: ClaimsT_contra) -> Mapping[str, str]:
        """Measurement registers by name, lower-case hex."""

    def require(self, claims: ClaimsT_contra) -> None:
        """Raises: PolicyViolation("measurement_mismatch")."""
        observed = self.observe(claims)
        for register, expected in self.values:
            if observed.get(register) not in expected:
                raise PolicyViolation(
                    "measurement_mismatch",
                    f"{register} is none of {len(expected)} reference values",
                )


def read_reference_values(
    table: PolicyTable, registers: Mapping[str, int]
) -> tuple[tuple[str, frozenset[str]], ...]:
    """The values of a ``RegistersExpected``: ``registers`` has the bytes of each by name.

    ``mode`` is said aloud, leaving reference values out is never a silent pass: there are none
    only where it is "not_checked", or there is a problem.
    """
    values: tuple[tuple[str, frozenset[str]], ...] = ()
    if table.choice("mode", ("required", "not_checked")) == "required":
        values = tuple(
            (name, table.names(name, in_hex(num_bytes)))
            for name, num_bytes in registers.items()
            if table.has(name)
        )
        if not values:
            table.problem("mode", "required, but no register has reference values")
    table.finish()
    return values


def listed(names: Iterable[str]) -> str:
    """Names as a message tells them."""
    return ", ".join(sorted(names))


def end_of_age(start: datetime, max_age: timedelta) -> datetime:
    """``max_age`` after ``start``, or the end of the calendar."""
    return start + min(max_age, datetime.max.replace(tzinfo=UTC) - start)

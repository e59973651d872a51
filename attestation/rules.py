"""What is one question of an AppraisalPolicy?  Verified claims in, nothing or an error out."""

from abc import ABC, abstractmethod
from datetime import UTC, datetime, timedelta
from typing import Generic, Protocol, TypeVar

ClaimsT_contra = TypeVar("ClaimsT_contra", contravariant=True)


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


def end_of_age(start: datetime, max_age: timedelta) -> datetime:
    """``max_age`` after ``start``, or the end of the calendar."""
    calendar_end = datetime.max.replace(tzinfo=UTC)
    return calendar_end if max_age > calendar_end - start else start + max_age

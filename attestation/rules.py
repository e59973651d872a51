"""What is one question of an AppraisalPolicy?  Verified claims in, nothing or an error out."""

from typing import Protocol, TypeVar

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

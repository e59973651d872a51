"""What was checked on the way to a verdict, in order?"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from attestation.errors import AttestationError
from attestation.model import Check


@dataclass(slots=True)
class CheckLog:
    """Collects one Check a step; the first failure is the verdict's code."""

    checks: list[Check] = field(default_factory=list)
    prefix: str = ""

    def scoped(self, submodule: str) -> "CheckLog":
        """The same log, for one submodule: its checks are named ``submodule.name``."""
        return CheckLog(checks=self.checks, prefix=f"{submodule}.")

    @contextmanager
    def step(self, name: str, passed: str) -> Iterator[None]:
        """Records ``passed`` when the body returns, and the error, re-raised, when it does not."""
        try:
            yield
        except AttestationError as err:
            self.fail(name, err)
            raise
        self.checks.append(Check(name=self.prefix + name, outcome="pass", reason=passed))

    @property
    def has_failed(self) -> bool:
        """Any step failed so far."""
        return any(check.outcome == "fail" for check in self.checks)

    def fail(self, name: str, err: AttestationError) -> None:
        """The step that ended in ``err``."""
        self.checks.append(
            Check(name=self.prefix + name, outcome="fail", code=err.code, reason=str(err))
        )

    def warning(self, name: str, reason: str) -> None:
        """Something the RelyingParty must see although it did not fail."""
        self.checks.append(Check(name=self.prefix + name, outcome="warn", reason=reason))

    def not_applicable(self, name: str, reason: str) -> None:
        """Something that was not asked for or not reached."""
        self.checks.append(Check(name=self.prefix + name, outcome="not_applicable", reason=reason))

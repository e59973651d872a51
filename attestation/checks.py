"""What was checked on the way to a verdict, in order?"""

from dataclasses import dataclass, field
from functools import lru_cache
from types import TracebackType

from attestation.errors import AttestationError
from attestation.model import Check

MAX_KNOWN = 256


@dataclass(slots=True)
class CheckLog:
    """Collects one Check a step; the first failure is the verdict's code."""

    checks: list[Check] = field(default_factory=list)
    prefix: str = ""

    def scoped(self, submodule: str) -> "CheckLog":
        """The same log, for one submodule: its checks are named ``submodule.name``."""
        return CheckLog(checks=self.checks, prefix=f"{submodule}.")

    def step(self, name: str, passed: str) -> "_Step":
        """Records ``passed`` when the body returns, and the error, re-raised, when it does not."""
        return _Step(self, name, passed)

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


@lru_cache(maxsize=MAX_KNOWN)
def _passed(name: str, reason: str) -> Check:
    """Steps that pass say the same each time, and nothing of the Evidence."""
    return Check(name=name, outcome="pass", reason=reason)


class _Step:
    """The context of one step; no generator: a verdict has a dozen of these."""

    __slots__ = ("_log", "_name", "_passed")

    def __init__(self, log: CheckLog, name: str, passed: str) -> None:
        self._log = log
        self._name = name
        self._passed = passed

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        err: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if err is None:
            log = self._log
            log.checks.append(_passed(log.prefix + self._name, self._passed))
        elif isinstance(err, AttestationError):
            self._log.fail(self._name, err)

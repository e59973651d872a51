"""What does this gateway accept of its workers now?  A policy and a deny list, both read anew on
SIGHUP.

A file that cannot be used changes nothing: what was accepted before stays, and the log says so.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from attestation.errors import PolicyError
from attestation.keyset import Keyset
from attestation.model import AttestationResult, ClaimValue
from attestation.policy import AppraisalPolicy

DENIED: Final = "denied"  # the class of a verdict
MAX_DENY_BYTES: Final = 1 << 20
MAX_DENIED: Final = 10_000
MAX_DENIED_CHARS: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """One state of what is accepted."""

    policy: AppraisalPolicy
    denied: frozenset[str] = frozenset()

    def refusal_of(self, result: AttestationResult, keyset: Keyset) -> str | None:
        """`DENIED` when anything that the verdict says of the worker is on the list."""
        return DENIED if self.denied.intersection(_names(result, keyset)) else None


class TrustSource:
    """The current state, and how to read it anew."""

    def __init__(self, load: Callable[[], Trust]) -> None:
        """Raises: PolicyError."""
        self._load = load
        self.current = load()

    def reload(self) -> bool:
        """Whether anything is different now; blocks on files. Raises: PolicyError."""
        before, self.current = self.current, self._load()
        return (before.policy.sha256, before.denied) != (
            self.current.policy.sha256,
            self.current.denied,
        )


def load_denied(path: Path | None) -> frozenset[str]:
    """The entries of a file: one a line, `#` begins a comment.

    An entry is a replica's name or, in lower-case hex, a digest or id as a verdict shows it: of
    weights, keys, a measurement, a chip. Raises: PolicyError for a file that cannot be used.
    """
    if path is None:
        return frozenset()
    try:
        with path.open("rb") as file:
            data = file.read(MAX_DENY_BYTES + 1)
        lines = data.decode("utf-8").splitlines()
    except OSError as err:
        raise PolicyError(f"deny list: cannot read {path}: {err.strerror}") from err
    except UnicodeDecodeError as err:
        raise PolicyError(f"deny list: {path} is not UTF-8") from err
    entries = frozenset(entry for line in lines if (entry := line.partition("#")[0].strip()))
    if len(data) > MAX_DENY_BYTES or len(entries) > MAX_DENIED:
        raise PolicyError(f"deny list: {path} has more than {MAX_DENIED} entries")
    if any(len(entry) > MAX_DENIED_CHARS or len(entry.split()) > 1 for entry in entries):
        raise PolicyError(f"deny list: {path}: want one name or digest a line")
    return entries


def _names(result: AttestationResult, keyset: Keyset) -> Iterator[str]:
    """All that the worker is known by."""
    yield keyset.replica
    yield from keyset.weights_sha256
    yield from (key.config_sha256 for key in keyset.ohttp)
    yield from (key.spki_sha256 for key in keyset.tls)
    yield from keyset.build.values()
    yield result.evidence_sha256
    for claims in (result.claims, *(each.claims for each in result.submods.values())):
        for value in claims.values():
            yield from _texts(value)


def _texts(value: ClaimValue) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        yield from value

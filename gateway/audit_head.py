"""How far had the audit log come?  Its head in a file beside the database, for the verifier.

The file follows the log: it may be a little behind, never ahead.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

from attestation.errors import MalformedEvidence
from attestation.receipt import AuditAnchor
from attestation.strict_json import integer, parse_object, require_keys, sha256_hex
from gateway.files import write_atomic
from telemetry.metrics import NS_PER_S

INTERVAL_NS: Final = 1_000_000_000  # a write is synced, and commits wait for it
_MAX_BYTES: Final = 256
_MEMBERS: Final = frozenset({"seq", "sha256"})


class HeadFile:
    """One file, replaced as a whole."""

    def __init__(self, path: Path, *, monotonic_ns: Callable[[], int]) -> None:
        self._path = path
        self._monotonic_ns = monotonic_ns
        self._next_ns = 0  # the next write is not before
        self._written: AuditAnchor | None = None

    def read(self) -> AuditAnchor | None:
        """None when there is no file, or none that can be read: then it says nothing."""
        try:
            return read_head_file(self._path)
        except (OSError, MalformedEvidence):
            return None

    def write_sometimes(self, head: AuditAnchor) -> float | None:
        """In how many seconds to try again; None when the file has this head."""
        now_ns = self._monotonic_ns()
        if head != self._written and now_ns >= self._next_ns:
            self._next_ns = now_ns + INTERVAL_NS
            self.write(head)
        return None if head == self._written else (self._next_ns - now_ns) / NS_PER_S

    def write(self, head: AuditAnchor | None) -> None:
        """A disk that is full leaves the old one, which is still true."""
        if head is None:
            return
        data = json.dumps({"seq": head.seq, "sha256": head.sha256}).encode() + b"\n"
        try:
            write_atomic(self._path, data)
        except OSError:
            return
        self._written = head


def read_head_file(path: Path) -> AuditAnchor:
    """Raises: OSError; MalformedEvidence."""
    with path.open("rb") as file:
        data = file.read(_MAX_BYTES + 1)
    members = require_keys(
        parse_object(data, what="audit head", max_bytes=_MAX_BYTES, max_depth=1),
        "audit head",
        required=_MEMBERS,
    )
    return AuditAnchor(
        seq=integer(members["seq"], "audit head.seq"),
        sha256=sha256_hex(members["sha256"], "audit head.sha256"),
    )

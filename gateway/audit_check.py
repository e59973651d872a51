"""Is the audit log of this installation whole, against everything here that has seen it?"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, Engine

from attestation.errors import MalformedEvidence
from attestation.receipt import AuditAnchor
from gateway.audit_chain import NO_EVENT, AuditBroken, require_anchor, verify_chain
from gateway.audit_head import read_head_file
from gateway.db import audit as table


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeLog:
    """What a log that holds was checked against."""

    num_events: int
    head_sha256: str
    num_receipts: int
    has_head_file: bool


def require_whole(
    engine: Engine, head_file: Path, anchors: Sequence[tuple[str, AuditAnchor]] = ()
) -> WholeLog:
    """The chain, the kept head, the heads in all stored receipts, and ``anchors`` by their source.

    Raises: AuditBroken; sqlalchemy errors.
    """
    kept = _kept_head(head_file)  # read before the log, which only grows
    with _snapshot(engine) as connection:
        hashes = verify_chain(table.read_all(connection))
        if kept is not None:
            require_anchor(hashes, kept, source=head_file.name)
        num_receipts = 0
        for receipt_id, anchor in table.read_anchors(connection):
            require_anchor(hashes, anchor, source=f"the receipt {receipt_id}")
            num_receipts += 1
    for source, anchor in anchors:
        require_anchor(hashes, anchor, source=source)
    return WholeLog(
        num_events=len(hashes),
        head_sha256=hashes[-1].hex() if hashes else NO_EVENT,
        num_receipts=num_receipts,
        has_head_file=kept is not None,
    )


def _kept_head(path: Path) -> AuditAnchor | None:
    """Raises: AuditBroken `audit_malformed`."""
    if not path.exists():
        return None
    try:
        return read_head_file(path)
    except (OSError, MalformedEvidence) as err:
        raise AuditBroken("audit_malformed", table.NOWHERE, f"{path} is no head of a log") from err


@contextmanager
def _snapshot(engine: Engine) -> Iterator[Connection]:
    """One state of the database, also while a gateway writes."""
    if engine.dialect.name == "postgresql":
        engine = engine.execution_options(isolation_level="REPEATABLE READ")
    with engine.begin() as connection:
        yield connection

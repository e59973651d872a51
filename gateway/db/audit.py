"""How does an event get to the end of the audit log?  The audit_event table: read and appended to.

Several processes append (`starshade keys` beside a gateway), so the head is read in the very
transaction that writes.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final, cast

from sqlalchemy import Connection, Engine, Table, insert, select, text
from sqlalchemy.engine import Row

from attestation.receipt import AuditAnchor, SignedReceipt
from gateway.audit_chain import FieldValue, StoredEvent, extend
from gateway.db.models import AuditRow, ReceiptRow

_TABLE: Final = cast(Table, AuditRow.__table__)
_INSERT: Final = insert(_TABLE)
_HEAD: Final = select(_TABLE.c.seq, _TABLE.c.sha256).order_by(_TABLE.c.seq.desc()).limit(1)
READ_ROWS: Final = 1000  # held in memory at a time


def append(
    connection: Connection, *, kind: str, fields: Mapping[str, FieldValue], at: datetime
) -> AuditAnchor:
    """The new head, in a transaction for writing. Raises: ValueError as `extend`."""
    if connection.dialect.name == "postgresql":  # SQLite's write lock is held already
        connection.execute(text("LOCK TABLE audit_event IN SHARE ROW EXCLUSIVE MODE"))
    event = extend(read_head(connection), kind=kind, fields=fields, at=at)
    connection.execute(_INSERT, {"seq": event.seq, "event": event.event, "sha256": event.sha256})
    return AuditAnchor(seq=event.seq, sha256=event.sha256.hex())


def read_head(connection: Connection) -> AuditAnchor | None:
    """The last event; None when there is none."""
    row = connection.execute(_HEAD).one_or_none()
    return None if row is None else AuditAnchor(seq=row.seq, sha256=row.sha256.hex())


def has_event(connection: Connection, anchor: AuditAnchor) -> bool:
    query = select(AuditRow.sha256).where(AuditRow.seq == anchor.seq)
    found = connection.execute(query).scalar_one_or_none()
    return found is not None and found.hex() == anchor.sha256


def read_all(connection: Connection) -> Iterator[StoredEvent]:
    """Oldest first."""
    query = select(AuditRow.seq, AuditRow.event, AuditRow.sha256).order_by(AuditRow.seq)
    for row in connection.execution_options(yield_per=READ_ROWS).execute(query):
        yield _stored(row)


def last_events(engine: Engine, *, limit: int) -> list[StoredEvent]:
    """The newest `limit`, oldest of them first."""
    query = (
        select(AuditRow.seq, AuditRow.event, AuditRow.sha256)
        .order_by(AuditRow.seq.desc())
        .limit(limit)
    )
    with engine.connect() as connection:
        return [_stored(row) for row in connection.execute(query)][::-1]


def read_anchors(connection: Connection) -> Iterator[tuple[str, AuditAnchor]]:
    """Id and anchor of every receipt that is stored.

    Raises: MalformedEvidence for a receipt that is none.
    """
    query = select(ReceiptRow.id, ReceiptRow.body).where(ReceiptRow.body.is_not(None))
    for row in connection.execution_options(yield_per=READ_ROWS).execute(query):
        anchor = SignedReceipt.parse(row.body).receipt.audit
        if anchor is not None:
            yield row.id, anchor


def _stored(row: Row[int, bytes, bytes]) -> StoredEvent:
    return StoredEvent(seq=row.seq, event=row.event, sha256=row.sha256)

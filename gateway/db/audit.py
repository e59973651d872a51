"""How does an event get to the end of the audit log?  The audit_event table: read and appended to.

Several processes append (`starshade keys` beside a gateway), so the head is read in the very
transaction that writes.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final, cast

from sqlalchemy import Connection, Engine, Table, insert, select, text
from sqlalchemy.engine import Row

from attestation.errors import MalformedEvidence
from attestation.receipt import AuditAnchor, SignedReceipt
from gateway.audit_chain import AuditBroken, FieldValue, StoredEvent, extend
from gateway.db.checked import RowDamaged
from gateway.db.models import AuditRow, ReceiptRow

_TABLE: Final = cast(Table, AuditRow.__table__)
_INSERT: Final = insert(_TABLE)
_HEAD: Final = select(_TABLE.c.seq, _TABLE.c.sha256).order_by(_TABLE.c.seq.desc()).limit(1)
READ_ROWS: Final = 1000  # held in memory at a time
NOWHERE: Final = 0  # no event is to blame


def append(
    connection: Connection, *, kind: str, fields: Mapping[str, FieldValue], at: datetime
) -> AuditAnchor:
    """The new head, in a transaction for writing. Raises: ValueError as `extend`; RowDamaged."""
    if connection.dialect.name == "postgresql":  # SQLite's write lock is held already
        connection.execute(text("LOCK TABLE audit_event IN SHARE ROW EXCLUSIVE MODE"))
    event = extend(read_head(connection), kind=kind, fields=fields, at=at)
    connection.execute(_INSERT, {"seq": event.seq, "event": event.event, "sha256": event.sha256})
    return AuditAnchor(seq=event.seq, sha256=event.sha256.hex())


def read_head(connection: Connection) -> AuditAnchor | None:
    """The last event; None when there is none. Raises: RowDamaged: nothing can follow it."""
    row = connection.execute(_HEAD).one_or_none()
    if row is None:
        return None
    if not isinstance(row.seq, int) or not isinstance(row.sha256, bytes):
        raise RowDamaged("the last event of the audit log is none")
    return AuditAnchor(seq=row.seq, sha256=row.sha256.hex())


def has_event(connection: Connection, anchor: AuditAnchor) -> bool:
    query = select(AuditRow.sha256).where(AuditRow.seq == anchor.seq)
    found = connection.execute(query).scalar_one_or_none()
    return isinstance(found, bytes) and found.hex() == anchor.sha256


def read_all(connection: Connection) -> Iterator[StoredEvent]:
    """Oldest first. Raises: AuditBroken `audit_malformed`."""
    query = select(AuditRow.seq, AuditRow.event, AuditRow.sha256).order_by(AuditRow.seq)
    rows = connection.execution_options(yield_per=READ_ROWS).execute(query)
    for place, row in enumerate(rows, start=1):
        yield _stored(row, place)


def last_events(engine: Engine, *, limit: int) -> list[StoredEvent]:
    """The newest `limit`, oldest of them first. Raises: AuditBroken `audit_malformed`."""
    query = (
        select(AuditRow.seq, AuditRow.event, AuditRow.sha256)
        .order_by(AuditRow.seq.desc())
        .limit(limit)
    )
    with engine.connect() as connection:
        return [_stored(row, NOWHERE) for row in connection.execute(query)][::-1]


def read_anchors(connection: Connection) -> Iterator[tuple[str, AuditAnchor]]:
    """Id and anchor of every receipt that is stored.

    Raises: AuditBroken `audit_malformed` for a receipt that is none.
    """
    query = select(ReceiptRow.id, ReceiptRow.body).where(ReceiptRow.body.is_not(None))
    for row in connection.execution_options(yield_per=READ_ROWS).execute(query):
        try:
            if not isinstance(row.id, str) or not isinstance(row.body, bytes):
                raise MalformedEvidence("format", "not stored as a receipt is")
            anchor = SignedReceipt.parse(row.body).receipt.audit
        except MalformedEvidence as err:
            message = f"the stored receipt {row.id!r:.40} is none: {err}"
            raise AuditBroken("audit_malformed", NOWHERE, message) from err
        if anchor is not None:
            yield row.id, anchor


def _stored(row: Row[int, bytes, bytes], place: int) -> StoredEvent:
    """SQLite keeps values of any type: `place` is where a row lies that has no number."""
    seq = row.seq if isinstance(row.seq, int) else place
    if seq is not row.seq or not isinstance(row.event, bytes) or not isinstance(row.sha256, bytes):
        raise AuditBroken("audit_malformed", seq, f"event {seq} is not stored as an event is")
    return StoredEvent(seq=seq, event=row.event, sha256=row.sha256)

"""Which requests were let in, and what was signed about each?  The receipt table.

A row begins as an intent, before the answer does; a row still without a body when the next process
starts is of a request that its gateway did not live to finish.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Final, cast

from sqlalchemy import Connection, Engine, Select, Table, bindparam, delete, insert, select, update

from gateway.db.models import ReceiptRow

MAX_PRUNED: Final = 1000  # rows one write may delete
MAX_SIGNED: Final = 200  # rows one write may sign


# Two of these run for every request: built once, and on the table, not through the mapper.
_TABLE: Final = cast(Table, ReceiptRow.__table__)
_INSERT: Final = insert(_TABLE)
_STORE: Final = (
    update(_TABLE)
    .where(_TABLE.c.id == bindparam("of_id"))
    .values(body=bindparam("new_body"), kid=bindparam("new_kid"))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """A request whose receipt is still to be signed."""

    id: str
    key_id: str
    kid: str
    endpoint: str
    opened_ns: int


def insert_intent(connection: Connection, intent: Intent) -> None:
    connection.execute(_INSERT, {**asdict(intent), "body": None})


def try_intent(connection: Connection, intent: Intent) -> None:
    """Leaves nothing behind, and fails where an intent could not be stored."""
    insert_intent(connection, intent)
    connection.execute(delete(_TABLE).where(_TABLE.c.id == intent.id))


def store_receipt(connection: Connection, intent: Intent, body: bytes) -> None:
    """Also where the intent was not stored: what is signed is kept."""
    signed = {"of_id": intent.id, "new_body": body, "new_kid": intent.kid}
    if connection.execute(_STORE, signed).rowcount == 0:
        connection.execute(_INSERT, {**asdict(intent), "body": body})


def sign_unfinished(
    connection: Connection, *, kid: str, before_ns: int, sign: Callable[[Intent], bytes]
) -> bool:
    """Gives the oldest intents of other processes, opened before then, the receipts that `sign`
    makes: a bounded number of them. Whether there may be more.
    """
    num_signed, query = 0, unfinished(kid=kid, before_ns=before_ns)
    for row in connection.execute(query).all():
        texts = (row.id, row.key_id, row.endpoint)
        if not all(isinstance(value, str) for value in texts) or not isinstance(row.opened_ns, int):
            continue  # no intent of ours: SQLite keeps values of any type
        intent = Intent(
            id=row.id,
            key_id=row.key_id,
            kid=kid,
            endpoint=row.endpoint,
            opened_ns=row.opened_ns,
        )
        store_receipt(connection, intent, sign(intent))
        num_signed += 1
    return num_signed > 0


def unfinished(*, kid: str, before_ns: int) -> Select[ReceiptRow]:
    return (
        select(ReceiptRow)
        .where(ReceiptRow.body.is_(None), ReceiptRow.kid != kid, ReceiptRow.opened_ns < before_ns)
        .order_by(ReceiptRow.opened_ns)
        .limit(MAX_SIGNED)
    )


def prune(connection: Connection, *, before_ns: int) -> bool:
    """Deletes the oldest receipts of before then, a bounded number of them. Whether there may be
    more.
    """
    oldest = (
        select(ReceiptRow.id)
        .where(ReceiptRow.opened_ns < before_ns)
        .order_by(ReceiptRow.opened_ns)
        .limit(MAX_PRUNED)
    )
    deleted = connection.execute(delete(_TABLE).where(_TABLE.c.id.in_(oldest)))
    return deleted.rowcount > 0


def find_receipt(engine: Engine, receipt_id: str, *, key_id: str) -> bytes | None:
    """The signed receipt, if this API key made the request and the row holds one.

    Blocks on the database.
    """
    query = select(ReceiptRow.body).where(ReceiptRow.id == receipt_id, ReceiptRow.key_id == key_id)
    with engine.connect() as connection:
        body = connection.execute(query).scalar_one_or_none()
    return body if isinstance(body, bytes) else None  # SQLite keeps values of any type

"""Which receipt does each request get, and is it certain to get one?  [docs/decisions/0014]

A request of a known credential opens a receipt, whose intent is on disk before the answer begins;
its end signs it, whichever end that is. What was signed is served from memory until it is stored.
"""

import asyncio
import hashlib
import logging
import re
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from attestation.keyset import ReceiptKey
from attestation.receipt import (
    MAX_TEXT_CHARS,
    AuditAnchor,
    Outcome,
    Receipt,
    receipt_key,
    signed_receipt_json,
)
from gateway.auth import Principal
from gateway.db import receipts as table
from gateway.db.receipts import Intent
from gateway.db.writer import DatabaseWriter, WriterFull
from gateway.facts import RequestFacts
from gateway.faults import describe_fault
from gateway.problems import GatewayError
from telemetry.metrics import NS_PER_S

_log = logging.getLogger(__name__)

RECEIPT: Final = "starshade.receipt"  # in an ASGI scope: the OpenReceipt of its request
HEADER: Final = b"starshade-receipt"
MAX_STORING_S: Final = 10.0  # that an answer waits for its receipt to be certain
LEFT_CODE: Final = "client_disconnected"
INTERRUPTED_CODE: Final = "gateway_died"
_ID: Final = re.compile(r"[0-9a-f]{32}")
_EMPTY_SHA256: Final = hashlib.sha256().hexdigest()
_NS_PER_MS: Final = 1_000_000
_DAY_NS: Final = 86_400 * NS_PER_S
_PRUNE_INTERVAL_NS: Final = 600 * NS_PER_S


@dataclass(slots=True, kw_only=True)
class OpenReceipt:
    """What is known so far of one request; mutable while it runs, signed by nobody yet."""

    id: str
    endpoint: str
    started_at: datetime
    started_ns: int
    owner: Principal | None = None  # none yet, or a stranger: then there is no receipt
    stored: "Future[None] | None" = None
    facts: RequestFacts | None = None
    sampling_sha256: str | None = None
    request_hash: Any = field(default_factory=hashlib.sha256)
    is_request_whole: bool = False
    response_hash: Any = field(default_factory=hashlib.sha256)
    bytes_sent: int = 0
    status: int | None = None  # none until an answer began
    is_response_whole: bool = False
    is_streamed: bool = False
    refusal: GatewayError | None = None

    @property
    def code(self) -> str | None:
        """Why the request did not get its whole answer."""
        if self.refusal is not None:
            return self.refusal.code
        if self.facts is not None and self.facts.error_code is not None:
            return self.facts.error_code
        return None if self.is_response_whole else LEFT_CODE

    @property
    def outcome(self) -> Outcome:
        if self.code == LEFT_CODE:
            return "cancelled"
        if self.status is not None and self.status >= 400:
            return "refused"
        return "complete" if self.code is None else "failed"


class ReceiptBook:
    """Opens, signs, keeps and finds the receipts of one process; used on the event loop."""

    def __init__(
        self,
        *,
        engine: Engine,
        writer: DatabaseWriter,
        key: Ed25519PrivateKey,
        replica: str,
        policy_sha256: Callable[[], str],
        audit_head: Callable[[], AuditAnchor | None],
        utc_now: Callable[[], datetime],
        monotonic_ns: Callable[[], int],
        new_id: Callable[[], str],
        keep_days: int,
    ) -> None:
        """`new_id` gives 32 lower-case hex digits that nobody can guess."""
        self._engine = engine
        self._writer = writer
        self._signing_key = key
        self._replica = replica
        self._policy_sha256 = policy_sha256
        self._audit_head = audit_head
        self._utc_now = utc_now
        self._monotonic_ns = monotonic_ns
        self._new_id = new_id
        self._keep_ns = keep_days * _DAY_NS
        self._pruned_ns: int | None = None
        self._unstored: dict[str, tuple[str, bytes]] = {}  # id: credential, signed receipt
        self.key: ReceiptKey = receipt_key(key.public_key())

    def open(self, endpoint: str) -> OpenReceipt:
        return OpenReceipt(
            id=self._new_id(),
            endpoint=endpoint,
            started_at=self._utc_now(),
            started_ns=self._monotonic_ns(),
        )

    def own(self, receipt: OpenReceipt, principal: Principal) -> None:
        """From here on the request will have a receipt, that this credential may read.

        Raises: GatewayError `receipt_unavailable`.
        """
        if self._writer.is_failing:
            raise unavailable()
        intent = self._intent(receipt, principal.key_id)
        receipt.stored = self._submitted(partial(table.insert_intent, intent=intent))
        receipt.owner = principal

    async def require_stored(self, receipt: OpenReceipt) -> None:
        """Before an answer begins. Raises: GatewayError `receipt_unavailable`."""
        if receipt.stored is None:
            return
        try:
            if not receipt.stored.done():
                async with asyncio.timeout(MAX_STORING_S):
                    await asyncio.shield(asyncio.wrap_future(receipt.stored))
            receipt.stored.result()
        except asyncio.CancelledError:
            raise
        except Exception:  # nothing in time; or whatever the database said, and it was logged
            raise unavailable() from None

    async def require_room(self) -> None:
        """A request that came now could have a receipt; after a failure this is tried.

        Raises: GatewayError `receipt_unavailable`.
        """
        if self._writer.is_failing:
            raise unavailable()
        if self._writer.has_failed:
            trial = self.open("/readyz")
            trial.stored = self._submitted(
                partial(table.try_intent, intent=self._intent(trial, key_id=""))
            )
            await self.require_stored(trial)

    def close(self, receipt: OpenReceipt) -> None:
        """Signs the receipt as the request ended; call it once."""
        if receipt.owner is None:
            return
        body = signed_receipt_json(self._receipt(receipt), self._signing_key)
        intent = self._intent(receipt, receipt.owner.key_id)
        self._unstored[receipt.id] = (receipt.owner.key_id, body)
        try:
            done = self._writer.submit(partial(table.store_receipt, intent=intent, body=body))
        except WriterFull:
            _log.error("a receipt is not stored", extra={"receipt": receipt.id})
            return
        done.add_done_callback(lambda _: self._unstored.pop(receipt.id, None))
        self._prune_sometimes(intent.opened_ns)

    async def find(self, receipt_id: str, principal: Principal) -> bytes:
        """The signed receipt.

        Raises: GatewayError `receipt_not_found`, also for another's; `receipt_unavailable`.
        """
        if _ID.fullmatch(receipt_id):
            owner_id, body = self._unstored.get(receipt_id, (None, None))
            if body is not None and owner_id == principal.key_id:
                return body
            try:
                stored = await asyncio.to_thread(
                    table.find_receipt, self._engine, receipt_id, key_id=principal.key_id
                )
            except SQLAlchemyError as err:
                raise unreadable(err) from err
            if stored is not None:
                return stored
        raise GatewayError("receipt_not_found", "There is no such receipt of this credential.")

    def recover(self, *, before_ns: int) -> None:
        """Signs, in the writer's thread, what an earlier process left unfinished."""
        self._write_in_parts(
            partial(
                table.sign_unfinished,
                kid=self.key.kid,
                before_ns=before_ns,
                sign=self._sign_interrupted,
            )
        )

    def _prune_sometimes(self, now_ns: int) -> None:
        last_ns, self_ns = self._pruned_ns, self._monotonic_ns()
        if last_ns is None or self_ns - last_ns >= _PRUNE_INTERVAL_NS:
            self._pruned_ns = self_ns
            self._write_in_parts(partial(table.prune, before_ns=now_ns - self._keep_ns))

    def _write_in_parts(self, write: Callable[[Connection], bool]) -> None:
        """Again as long as `write` says that there may be more, with others' writes in between."""
        has_more = False

        def write_part(connection: Connection) -> None:
            nonlocal has_more
            has_more = write(connection)

        def go_on(done: "Future[None]") -> None:
            if done.exception() is None and has_more:
                self._write_in_parts(write)

        with suppress(WriterFull):
            self._writer.submit(write_part).add_done_callback(go_on)

    def _submitted(self, write: Callable[[Connection], None]) -> "Future[None]":
        """Raises: GatewayError `receipt_unavailable`."""
        try:
            return self._writer.submit(write, is_kept=False)
        except WriterFull:
            raise unavailable() from None

    def _intent(self, receipt: OpenReceipt, key_id: str) -> Intent:
        return Intent(
            id=receipt.id,
            key_id=key_id,
            kid=self.key.kid,
            endpoint=receipt.endpoint,
            opened_ns=round(receipt.started_at.timestamp() * NS_PER_S),
        )

    def _receipt(self, opened: OpenReceipt) -> Receipt:
        facts = opened.facts
        lease = None if facts is None else facts.lease
        code = opened.code
        return Receipt(
            id=opened.id,
            kid=self.key.kid,
            replica=self._replica,
            endpoint=opened.endpoint,
            started_at=opened.started_at,
            duration_ms=(self._monotonic_ns() - opened.started_ns) // _NS_PER_MS,
            outcome=opened.outcome,
            status=opened.status or 499,
            code=code,
            is_streamed=opened.is_streamed,
            request_sha256=opened.request_hash.hexdigest() if opened.is_request_whole else None,
            response_sha256=opened.response_hash.hexdigest(),
            bytes_sent=opened.bytes_sent,
            model=None if facts is None or facts.model is None else facts.model[:MAX_TEXT_CHARS],
            sampling_sha256=opened.sampling_sha256,
            worker=None if facts is None else facts.worker_id,
            weights_sha256=None if facts is None else facts.weights_sha256,
            lease_id=None if lease is None else lease.verdict_id,
            worker_keyset_sha256=None if lease is None else lease.keyset_digest,
            policy_sha256=self._policy_sha256() if lease is None else lease.policy_sha256,
            revocation=None if facts is None or facts.hop is None else facts.hop.revocation,
            audit=self._audit_head(),
        )

    def _sign_interrupted(self, intent: Intent) -> bytes:
        receipt = Receipt(
            id=intent.id,
            kid=self.key.kid,
            replica=self._replica,
            endpoint=intent.endpoint,
            started_at=datetime.fromtimestamp(
                intent.opened_ns / NS_PER_S, tz=self._utc_now().tzinfo
            ),
            duration_ms=0,
            outcome="interrupted",
            status=500,
            code=INTERRUPTED_CODE,
            is_streamed=False,
            request_sha256=None,
            response_sha256=_EMPTY_SHA256,
            bytes_sent=0,
            model=None,
            sampling_sha256=None,
            worker=None,
            weights_sha256=None,
            lease_id=None,
            worker_keyset_sha256=None,
            policy_sha256=self._policy_sha256(),
            revocation=None,
            audit=self._audit_head(),
        )
        return signed_receipt_json(receipt, self._signing_key)


def unavailable() -> GatewayError:
    return GatewayError(
        "receipt_unavailable", "Receipts cannot be stored now, so nothing is answered."
    )


def unreadable(err: SQLAlchemyError) -> GatewayError:
    _log.error("the database cannot be read: %s", describe_fault(err))
    return GatewayError(
        "receipt_unavailable", "The database cannot be read now, so nothing is answered."
    )

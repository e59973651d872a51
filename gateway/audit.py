"""What happened that somebody may ask about later?  The gateway's own audit log.

Appending never waits and never fails: the event goes to the database's one writer. An event that
cannot even be queued is counted, and the count is the next event; by then requests are refused,
because their receipts cannot be stored either.
"""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Final

from sqlalchemy import Connection, Engine

from attestation.receipt import AuditAnchor
from gateway.audit_chain import FieldValue
from gateway.audit_head import HeadFile
from gateway.db import audit as table
from gateway.db.checked import RowDamaged
from gateway.db.writer import DatabaseWriter, WriterFull
from gateway.facts import AttestFacts
from telemetry.metrics import NS_PER_S

_log = logging.getLogger(__name__)

GATEWAY_STARTED: Final = "gateway_started"
GATEWAY_STOPPED: Final = "gateway_stopped"
LEASE_GRANTED: Final = "lease_granted"
WORKER_QUARANTINED: Final = "worker_quarantined"
WORKER_UNREACHABLE: Final = "worker_unreachable"
WORKER_REGISTERED: Final = "worker_registered"
WORKER_REMOVED: Final = "worker_removed"
REQUEST_REFUSED: Final = "request_refused"
CHANNEL_KEYS_ROTATED: Final = "channel_keys_rotated"
TRUST_CHANGED: Final = "trust_changed"
TRUST_REFUSED: Final = "trust_refused"
EVENTS_LOST: Final = "events_lost"
HEAD_MISSING: Final = "head_missing"

REFUSALS_BURST: Final = 100  # of one code; the log is never pruned, so nobody may fill the disk
REFUSALS_PER_S: Final = 1
MAX_REFUSAL_CODES: Final = 256


class AuditLog:
    """Appends to the log of gateway.db; used on the event loop."""

    def __init__(
        self,
        writer: DatabaseWriter,
        *,
        head_file: HeadFile,
        utc_now: Callable[[], datetime],
        monotonic_ns: Callable[[], int],
    ) -> None:
        self._writer = writer
        self._head_file = head_file
        self._utc_now = utc_now
        self._monotonic_ns = monotonic_ns
        self._written: AuditAnchor | None = None  # of the writer's thread: not yet committed
        self._head: AuditAnchor | None = None
        self._num_lost = 0
        self._refusals: dict[str, _Allowance] = {}
        self._last_states: dict[str, str] = {}

    def start(self, engine: Engine) -> None:
        """Takes up the log where it ends; blocks on the database. Before the writer starts.

        Where the end is damaged nothing can follow it: what is appended is held, and requests are
        refused until the log is mended.
        """
        kept = self._head_file.read()
        with engine.connect() as connection:
            try:
                self._head = table.read_head(connection)
            except RowDamaged as err:
                _log.error("the audit log cannot be continued: %s", err)
            is_whole = kept is None or table.has_event(connection, kept)
        self._writer.on_committed = self._committed
        if kept is not None and not is_whole:
            _log.error("the audit log lacks an event that it had", extra={"seq": kept.seq})
            self.append(HEAD_MISSING, {"seq": kept.seq, "sha256": kept.sha256})

    def stop(self) -> None:
        """After the writer's last commit."""
        self._head_file.write(self._head)

    @property
    def head(self) -> AuditAnchor | None:
        """The last event that is committed."""
        return self._head

    def append(self, kind: str, fields: Mapping[str, FieldValue]) -> None:
        """Queues one event. `fields` hold names, codes, digests and counts, never content or keys:
        the log is kept for ever and shown to operators.
        """
        if self._num_lost and self._is_queued(EVENTS_LOST, {"count": self._num_lost}):
            self._num_lost = 0
        if not self._is_queued(kind, fields):
            self._num_lost += 1

    def refused(self, error_code: str, detail: str | None, **fields: FieldValue) -> None:
        """A request that was refused, with its precise class; a flood is counted, not written."""
        code = error_code if detail is None else f"{error_code}/{detail}"
        if code not in self._refusals and len(self._refusals) >= MAX_REFUSAL_CODES:
            self._refusals.clear()
        allowance = self._refusals.setdefault(code, _Allowance(self._monotonic_ns()))
        num_left_out = allowance.take(self._monotonic_ns())
        if num_left_out is None:
            return
        more: dict[str, FieldValue] = {"left_out": num_left_out} if num_left_out else {}
        if detail is not None:
            more["detail"] = detail
        self.append(REQUEST_REFUSED, {"code": error_code, **more, **fields})

    def attested(self, facts: AttestFacts) -> None:
        """Each lease, and each change of why there is none."""
        if facts.error_code is None:
            self._last_states.pop(facts.worker_id, None)
            self.append(LEASE_GRANTED, _lease_fields(facts))
            return
        kind = WORKER_QUARANTINED if facts.has_verdict else WORKER_UNREACHABLE
        state = f"{kind}/{facts.error_code}"
        if self._last_states.get(facts.worker_id) == state:
            return
        self._last_states[facts.worker_id] = state
        fields: dict[str, FieldValue] = {"worker": facts.worker_id, "code": facts.error_code}
        if facts.result is not None:
            fields["verdict_id"] = facts.result.verdict_id
            fields["policy_sha256"] = facts.result.policy_sha256
        self.append(kind, fields)

    def _is_queued(self, kind: str, fields: Mapping[str, FieldValue]) -> bool:
        at = self._utc_now()
        try:
            self._writer.submit(partial(self._write, kind=kind, fields=dict(fields), at=at))
        except WriterFull:
            return False
        return True

    def _write(
        self, connection: Connection, *, kind: str, fields: Mapping[str, FieldValue], at: datetime
    ) -> None:
        self._written = table.append(connection, kind=kind, fields=fields, at=at)

    def _committed(self) -> float | None:
        """In the writer's thread."""
        if self._written is None:
            return None
        self._head = self._written
        return self._head_file.write_sometimes(self._head)


class _Allowance:
    """A token bucket that also counts what it did not let through."""

    def __init__(self, now_ns: int) -> None:
        self._left = float(REFUSALS_BURST)
        self._at_ns = now_ns
        self._num_left_out = 0

    def take(self, now_ns: int) -> int | None:
        """How many were left out before this one; None when this one is."""
        gained = (now_ns - self._at_ns) / NS_PER_S * REFUSALS_PER_S
        self._left, self._at_ns = min(self._left + gained, REFUSALS_BURST), now_ns
        if self._left < 1:
            self._num_left_out += 1
            return None
        self._left -= 1
        num_left_out, self._num_left_out = self._num_left_out, 0
        return num_left_out


def _lease_fields(facts: AttestFacts) -> dict[str, FieldValue]:
    fields: dict[str, FieldValue] = {"worker": facts.worker_id}
    if facts.weights_sha256 is not None:
        fields["weights_sha256"] = facts.weights_sha256
    if facts.lease_not_after is not None:
        fields["not_after"] = facts.lease_not_after.isoformat(timespec="seconds")
    result = facts.result
    if result is not None:
        fields |= {
            "verdict_id": result.verdict_id,
            "tier": result.tier,
            "evidence_sha256": result.evidence_sha256,
            "policy_sha256": result.policy_sha256,
        }
        if result.code is not None:
            fields["code"] = result.code
    return fields

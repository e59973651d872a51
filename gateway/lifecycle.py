"""What happens when the gateway starts, is told to read its policy anew, and stops?"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from opentelemetry.sdk.trace import TracerProvider
from sqlalchemy import Engine

from attestation.errors import PolicyError
from gateway.audit import (
    GATEWAY_STARTED,
    GATEWAY_STOPPED,
    TRUST_CHANGED,
    TRUST_REFUSED,
    AuditLog,
)
from gateway.db.writer import DatabaseWriter
from gateway.receipts import ReceiptBook
from gateway.trust import TrustSource
from gateway.workers import WorkerDirectory
from telemetry.metrics import NS_PER_S

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifecycle:
    """What of the gateway has a beginning and an end."""

    engine: Engine
    provider: TracerProvider
    writer: DatabaseWriter
    audit: AuditLog
    trust: TrustSource
    directory: WorkerDirectory
    receipts: ReceiptBook
    unix_ns: Callable[[], int]
    request_deadline_s: int

    def start(self) -> None:
        self.audit.start(self.engine)
        self.writer.start()
        trust = self.trust.current
        self.audit.append(
            GATEWAY_STARTED,
            {
                "receipt_kid": self.receipts.key.kid,
                "policy": trust.policy.name,
                "policy_sha256": trust.policy.sha256,
                "denied": len(trust.denied),
            },
        )
        self.receipts.recover(before_ns=self.unix_ns() - self._recovery_age_ns())

    async def reload(self) -> None:
        """A new policy or deny list ends every lease of before."""
        try:
            is_changed = await asyncio.to_thread(self.trust.reload)
        except PolicyError as err:
            _log.error("what is accepted stays as it was: %s", err)
            self.audit.append(TRUST_REFUSED, {"policy_sha256": self.trust.current.policy.sha256})
            return
        if is_changed:
            epoch, trust = self.directory.advance_epoch(), self.trust.current
            self.audit.append(
                TRUST_CHANGED,
                {
                    "epoch": epoch,
                    "policy": trust.policy.name,
                    "policy_sha256": trust.policy.sha256,
                    "denied": len(trust.denied),
                },
            )

    async def stop(self) -> None:
        self.audit.append(GATEWAY_STOPPED, {})
        await asyncio.to_thread(self.writer.stop)
        self.audit.stop()
        await asyncio.to_thread(self.provider.shutdown)
        self.engine.dispose()

    def _recovery_age_ns(self) -> int:
        """How old an unfinished request of another process is, that this one may say died.

        A file is one gateway's; a server may be shared by several, whose requests still run.
        """
        is_own = self.engine.dialect.name == "sqlite"
        return 0 if is_own else 2 * self.request_deadline_s * NS_PER_S

"""Which requests were refused before a receipt could tell of them?  Middleware, for the audit log.

What a receipt tells of, the `Witness` of that request notes. Here are the others: strangers, sealed
requests that do not open, replays, and what is over a limit before anybody knows whose it is.
"""

from collections.abc import Collection
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.audit import AuditLog
from gateway.problems import REFUSAL, GatewayError
from gateway.receipts import RECEIPT

OTHER_PATH: Final = "other"  # what a client asked for is no fact of ours


class RefusalNotes:
    """Outermost: every layer inside may refuse."""

    def __init__(self, app: ASGIApp, *, audit: AuditLog, known_paths: Collection[str]) -> None:
        self._app = app
        self._audit = audit
        self._known_paths = frozenset(known_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        finally:
            error: GatewayError | None = scope.get(REFUSAL)
            if error is not None and RECEIPT not in scope:
                path = scope["path"]
                endpoint = path if path in self._known_paths else OTHER_PATH
                self._audit.refused(error.code, error.precise_code, endpoint=endpoint)

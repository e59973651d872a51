"""What does a worker sign when the gateway before it cannot read?  Receipts of its own.

They are kept in memory for an hour and read through the seal. Whoever can read an answer knows the
id of its receipt, nobody else does, so the id is the credential.
"""

import hashlib
import json
import logging
import re
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from attestation.errors import AttestationError
from attestation.keyset import ReceiptKey
from attestation.receipt import MAX_TEXT_CHARS, Outcome, Receipt, receipt_key, signed_receipt_json
from attestation.sampling import sampling_digest
from gateway import sse
from gateway.calls import MALFORMED
from gateway.direct import DirectSlot
from gateway.problems import GatewayError
from gateway.schemas.wire import parse_object
from gateway.worker.inner import (
    JSON,
    InnerRequest,
    InnerResponse,
    InnerService,
    error_response,
    fault_response,
    once,
)
from telemetry.metrics import NS_PER_S

_log = logging.getLogger(__name__)

PATH_PREFIX: Final = "/v1/receipts/"
FIELD: Final = "starshade-receipt"
MAX_KEPT: Final = 4096
KEPT_NS: Final = 3600 * NS_PER_S
MAX_ERROR_BYTES: Final = 16_384  # of a refusal, to read its code
_ERROR_STARTS: Final = (b'data: {"error":{', b"event: error\n")
_NS_PER_MS: Final = 1_000_000
_CODE: Final = re.compile(r"[a-z0-9_]{1,64}")


class NodeReceipts:
    """Signs and keeps the receipts of one worker; used on the event loop."""

    def __init__(
        self,
        *,
        key: Ed25519PrivateKey,
        replica: str,
        policy_sha256: str,
        utc_now: Callable[[], datetime],
        monotonic_ns: Callable[[], int],
        new_id: Callable[[], str],
    ) -> None:
        """`new_id` gives 32 lower-case hex digits that nobody can guess."""
        self.key: ReceiptKey = receipt_key(key.public_key())
        self._signing_key = key
        self._replica = replica
        self._policy_sha256 = policy_sha256
        self._utc_now = utc_now
        self._monotonic_ns = monotonic_ns
        self._new_id = new_id
        self._kept: OrderedDict[str, tuple[int, bytes]] = OrderedDict()

    def witness(self, service: InnerService, *, weights_sha256: str) -> InnerService:
        """The same service, each POST of which has a receipt."""
        return _Witnessed(service, self, weights_sha256)

    def find(self, receipt_id: str) -> bytes:
        """Raises: GatewayError `receipt_not_found`."""
        self._forget()
        if receipt_id not in self._kept:
            raise GatewayError("receipt_not_found", "There is no such receipt here any more.")
        return self._kept[receipt_id][1]

    def open(self, request: InnerRequest) -> "_Open":
        model, sampling_sha256 = _described(request.body)
        return _Open(
            id=self._new_id(),
            request=request,
            started_at=self._utc_now(),
            started_ns=self._monotonic_ns(),
            model=model,
            sampling_sha256=sampling_sha256,
        )

    def close(self, opened: "_Open", *, weights_sha256: str) -> None:
        now_ns = self._monotonic_ns()
        receipt = Receipt(
            id=opened.id,
            kid=self.key.kid,
            replica=self._replica,
            endpoint=opened.request.path[:MAX_TEXT_CHARS],
            started_at=opened.started_at,
            duration_ms=(now_ns - opened.started_ns) // _NS_PER_MS,
            outcome=opened.outcome,
            status=opened.status,
            code=opened.code,
            is_streamed=opened.is_streamed,
            request_sha256=hashlib.sha256(opened.request.body).hexdigest(),
            response_sha256=opened.response_hash.hexdigest(),
            bytes_sent=opened.bytes_sent,
            model=opened.model,
            sampling_sha256=opened.sampling_sha256,
            worker=self._replica,
            weights_sha256=weights_sha256,
            lease_id=None,
            worker_keyset_sha256=None,
            policy_sha256=self._policy_sha256,
            revocation=None,
            audit=None,
        )
        self._kept[opened.id] = (now_ns, signed_receipt_json(receipt, self._signing_key))
        self._forget()

    def _forget(self) -> None:
        now_ns = self._monotonic_ns()
        while self._kept:
            kept_ns, _ = next(iter(self._kept.values()))
            if len(self._kept) <= MAX_KEPT and now_ns - kept_ns < KEPT_NS:
                return
            self._kept.popitem(last=False)


@dataclass(slots=True, kw_only=True)
class _Open:
    """What is known so far of one request."""

    id: str
    request: InnerRequest
    started_at: datetime
    started_ns: int
    model: str | None
    sampling_sha256: str | None
    status: int = 500
    is_streamed: bool = False
    response_hash: Any = None
    bytes_sent: int = 0
    is_whole: bool = False
    error_code: str | None = None

    @property
    def code(self) -> str | None:
        return self.error_code or (None if self.is_whole else "client_disconnected")

    @property
    def outcome(self) -> Outcome:
        if self.status >= 400:
            return "refused"
        if not self.is_whole:
            return "cancelled"
        return "complete" if self.error_code is None else "failed"

    def noted(self, data: bytes) -> bytes:
        """One piece of the answer, as it is handed to be sealed."""
        self.response_hash.update(data)
        self.bytes_sent += len(data)
        if self.error_code is None:
            if self.is_streamed and data.startswith(_ERROR_STARTS):
                self.error_code = _error_code(sse.event_data(data.split(b"\n\n", 1)[0]))
            elif self.status >= 400:
                self.error_code = _error_code(data[:MAX_ERROR_BYTES])
        return data


class _Witnessed:
    """`InnerService` with receipts."""

    def __init__(self, service: InnerService, receipts: NodeReceipts, weights_sha256: str) -> None:
        self._service = service
        self._receipts = receipts
        self._weights_sha256 = weights_sha256

    async def respond(self, request: InnerRequest) -> InnerResponse:
        if request.path.startswith(PATH_PREFIX) and request.method == "GET":
            return self._find(request.path.removeprefix(PATH_PREFIX))
        if request.method != "POST":
            return await self._service.respond(request)
        opened = self._receipts.open(request)
        response = await self._respond(request)
        opened.status = response.status
        opened.is_streamed = response.media_type.startswith(sse.MEDIA_TYPE)
        opened.response_hash = hashlib.sha256()
        slot = DirectSlot()
        body = self._watched(response, opened, slot)
        await anext(body)  # begun, so that closing it closes what is behind it
        return replace(response, body=body, fields=((FIELD, opened.id),), slot=slot)

    async def _respond(self, request: InnerRequest) -> InnerResponse:
        try:
            return await self._service.respond(request)
        except Exception as err:  # the edge of one request: its failure has a receipt as well
            response, description = fault_response(err)
            _log.error("request failed: %s", description)
            return response

    async def _watched(
        self, response: InnerResponse, opened: _Open, slot: DirectSlot
    ) -> AsyncGenerator[bytes, None]:
        """First an empty item. Signed before the end is sealed, however it ends."""
        try:
            yield b""
            async for data in response.body:
                yield opened.noted(data)
                response.slot.fill_through(slot, opened.noted)
            opened.is_whole = True
        finally:
            self._receipts.close(opened, weights_sha256=self._weights_sha256)
            await response.body.aclose()

    def _find(self, receipt_id: str) -> InnerResponse:
        try:
            body = self._receipts.find(receipt_id)
        except GatewayError as err:
            return error_response(err)
        return InnerResponse(status=200, media_type=JSON, body=once(body))


def _described(body: bytes) -> tuple[str | None, str | None]:
    """Model and sampling digest, where the body is an object that the worker would read too."""
    try:
        request = parse_object(body)
        sampling_sha256 = sampling_digest(request)
        model = request.get("model")
    except (GatewayError, AttestationError):
        return None, None
    return (model[:MAX_TEXT_CHARS] if isinstance(model, str) else None), sampling_sha256


def _error_code(body: bytes) -> str:
    try:
        code = json.loads(body)["error"]["code"]
    except MALFORMED:
        return "internal_error"
    return code if isinstance(code, str) and _CODE.fullmatch(code) else "internal_error"

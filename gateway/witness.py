"""What went in and out of one request?  Middleware that measures it, for the receipt.

Outermost but for what opens sealed requests and what pads: digests are over what a client wrote and
reads, and every refusal inside is seen. An answer begins only once its receipt is certain to exist.
"""

from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.direct import DIRECT, Direct
from gateway.edge import AnswerWithheld
from gateway.problems import RECEIPT_ID, REFUSAL, GatewayError, response_for
from gateway.receipts import HEADER, RECEIPT, OpenReceipt, ReceiptBook
from gateway.shaping import is_event_stream


class Witness:
    """Hashes both bodies, and closes the receipt before the client sees the end."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        book: ReceiptBook,
        counts: Callable[[Scope], bool],
        on_ended: Callable[[OpenReceipt], None],
    ) -> None:
        """`on_ended` hears of every request of `counts`, strangers' included."""
        self._app = app
        self._book = book
        self._counts = counts
        self._on_ended = on_ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._counts(scope):
            await self._app(scope, receive, send)
            return
        receipt = scope[RECEIPT] = self._book.open(scope["path"])
        sight = _Sight(scope, receive, send, receipt=receipt, book=self._book)
        direct: Direct | None = scope.get(DIRECT)
        if direct is not None:
            scope[DIRECT] = direct.through(sight.noted)
        try:
            await self._app(scope, sight.receive, sight.send)
        except AnswerWithheld:
            pass
        finally:
            sight.close()
            self._on_ended(receipt)


class _Sight:
    """The two directions of one request."""

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        *,
        receipt: OpenReceipt,
        book: ReceiptBook,
    ) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._receipt = receipt
        self._book = book
        self._is_closed = False
        self._is_withheld = False

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request" and not self._receipt.is_request_whole:
            self._receipt.request_hash.update(message.get("body", b""))
            self._receipt.is_request_whole = not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        if self._is_withheld:
            raise AnswerWithheld
        if message["type"] == "http.response.start":
            await self._begin(message)
        elif message["type"] == "http.response.body":
            await self._pass_on(message)
        else:
            await self._send(message)

    def noted(self, body: bytes) -> bytes:
        """A piece that the client gets."""
        self._receipt.response_hash.update(body)
        self._receipt.bytes_sent += len(body)
        return body

    def close(self) -> None:
        """Idempotent: the end of the body closes it, else the end of the request."""
        if not self._is_closed:
            self._is_closed = True
            self._book.close(self._receipt)

    async def _begin(self, message: Message) -> None:
        receipt = self._receipt
        receipt.refusal = self._scope.get(REFUSAL)
        receipt.is_streamed = is_event_stream(message)
        if receipt.owner is not None:
            if message["status"] < 400:
                try:
                    await self._book.require_stored(receipt)
                except GatewayError as err:
                    await self._withhold(err)
            headers = [*message.get("headers", ()), (HEADER, receipt.id.encode())]
            message = {**message, "headers": headers}
        receipt.status = message["status"]
        await self._send(message)

    async def _pass_on(self, message: Message) -> None:
        """The end is sent by itself, after the receipt has been signed over all before it."""
        body, has_more = message.get("body", b""), message.get("more_body", False)
        if body:
            await self._send(message if has_more else {**message, "more_body": True})
            self.noted(body)
        if not has_more:
            self._receipt.is_response_whole = True
            self.close()
            await self._send({"type": message["type"], "body": b"", "more_body": False})

    async def _withhold(self, error: GatewayError) -> None:
        """Raises: AnswerWithheld, always."""
        self._is_withheld = True
        self._receipt.owner = None
        self._receipt.refusal, self._receipt.status = error, error.status
        if self._receipt.facts is not None:
            self._receipt.facts.fail(error.code)
        self._scope.pop(RECEIPT_ID, None)
        await response_for(self._scope, error)(self._scope, self._receive, self._send)
        raise AnswerWithheld

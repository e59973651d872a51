"""How does an httpx client come to seal all that it sends to an attested gateway?

Two transports, for threads and for event loops, over the same parts: the keeper's session, TLS that
takes its attested keys alone, and sealing. When the gateway has changed a key, by the TLS handshake
or by refusing to open, the request is sealed once more under a new verdict; it was not read before.
"""

import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final, Generic, TypeVar

import httpx

from attestation.channel import CHUNKED_REQUEST_TYPE, CHUNKED_RESPONSE_TYPE, Rng
from attestation.transport.keeper import SessionKeeper
from attestation.transport.opened import (
    aopened,
    aread_refusal,
    is_sealed,
    opened,
    read_refusal,
)
from attestation.transport.pinned import ClientCertificate, is_pin_mismatch, pinned_context
from attestation.transport.sealing import (
    CREDENTIAL,
    KEY_CHANGED,
    PlainRequest,
    SealedRequest,
    seal,
)
from attestation.transport.session import Session
from attestation.transport.url import KEYS_PATH, EvidenceUrl

_ATTEMPTS: Final = 2
_LIMITS: Final = httpx.Limits(max_connections=1024, max_keepalive_connections=32)

Pool = TypeVar("Pool", httpx.HTTPTransport, httpx.AsyncHTTPTransport)


class _Attested(Generic[Pool]):
    """What both transports share: whom they talk to, and one pool of connections per pin set."""

    def __init__(
        self,
        keeper: SessionKeeper,
        *,
        source: EvidenceUrl,
        utc_now: Callable[[], datetime],
        rng: Rng,
        ca_file: Path | None = None,
        proxy: str | None = None,
        client_certificate: ClientCertificate | None = None,
    ) -> None:
        self.keeper = keeper
        self._origin = httpx.URL(source.origin)
        self._utc_now = utc_now
        self._rng = rng
        self._ca_file = ca_file
        self._proxy = proxy
        self._client_certificate = client_certificate
        self._pools: dict[frozenset[bytes], Pool] = {}
        self._lock = threading.Lock()  # two threads must not make two pools, of which one is lost

    def _pool(self, session: Session, make: type[Pool]) -> Pool:
        """Earlier ones stay until the end: answers may still be coming."""
        with self._lock:
            pool = self._pools.get(session.tls_pins)
            if pool is None:
                context = pinned_context(self._ca_file, session.tls_pins, self._client_certificate)
                pool = make(verify=context, trust_env=False, proxy=self._proxy, limits=_LIMITS)
                self._pools[session.tls_pins] = pool
        return pool

    def _plain(self, request: httpx.Request) -> PlainRequest:
        """Raises: httpx.UnsupportedProtocol for any other server: it was not attested."""
        url = request.url
        if (url.scheme, url.host, url.port or 443) != (
            self._origin.scheme,
            self._origin.host,
            self._origin.port or 443,
        ):
            raise httpx.UnsupportedProtocol(
                f"this client talks to {self._origin} alone", request=request
            )
        return PlainRequest(
            method=request.method,
            authority=url.netloc.decode("ascii"),
            path=url.raw_path.decode("ascii"),
            fields=[
                (name.decode("latin-1"), value.decode("latin-1"))
                for name, value in request.headers.raw
            ],
            content=request.content,
        )

    def _seal(self, plain: PlainRequest, session: Session) -> SealedRequest:
        """Each time in a context of its own, so that no two are alike. Raises: ChannelBroken."""
        if session.is_blind:
            plain = plain.without(CREDENTIAL)
        return seal(plain, session.key_config, at=self._utc_now(), rng=self._rng)

    def _outer(
        self, sealed: SealedRequest, request: httpx.Request, session: Session
    ) -> httpx.Request:
        """In clear is what the gateway has to know, and it knows nothing else."""
        headers = [
            (b"content-type", CHUNKED_REQUEST_TYPE.encode()),
            (b"accept", CHUNKED_RESPONSE_TYPE.encode()),
            (b"accept-encoding", b"identity"),
            (b"user-agent", b"starshade"),
        ]
        if session.is_blind:
            headers += [
                (name.lower(), value)
                for name, value in request.headers.raw
                if name.lower() == CREDENTIAL.encode()
            ]
        return httpx.Request(
            "POST",
            self._origin.join(KEYS_PATH),
            headers=headers,
            content=sealed.body,
            extensions={"timeout": request.extensions.get("timeout", {})},
        )


class AttestedTransport(_Attested[httpx.HTTPTransport], httpx.BaseTransport):
    """For ``httpx.Client``; safe to share between threads."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Raises: AttestedTransportError; httpx.TransportError."""
        request.read()
        plain = self._plain(request)
        session = self.keeper.require()
        attempt = 1
        while True:
            sealed = self._seal(plain, session)
            try:
                outer = self._pool(session, httpx.HTTPTransport).handle_request(
                    self._outer(sealed, request, session)
                )
                if is_sealed(outer):
                    return opened(sealed.opening, outer, session)
                code, refusal = read_refusal(outer)
                if code != KEY_CHANGED or attempt == _ATTEMPTS:
                    return refusal
            except httpx.TransportError as err:
                if not is_pin_mismatch(err) or attempt == _ATTEMPTS:
                    raise
            attempt += 1
            session = self.keeper.renew(than=session).result()

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()


class AsyncAttestedTransport(_Attested[httpx.AsyncHTTPTransport], httpx.AsyncBaseTransport):
    """For ``httpx.AsyncClient``; of one event loop."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Raises: AttestedTransportError; httpx.TransportError."""
        await request.aread()
        plain = self._plain(request)
        session = await self.keeper.arequire()
        attempt = 1
        while True:
            sealed = self._seal(plain, session)
            try:
                pool = self._pool(session, httpx.AsyncHTTPTransport)
                outer = await pool.handle_async_request(self._outer(sealed, request, session))
                if is_sealed(outer):
                    return await aopened(sealed.opening, outer, session)
                code, refusal = await aread_refusal(outer)
                if code != KEY_CHANGED or attempt == _ATTEMPTS:
                    return refusal
            except httpx.TransportError as err:
                if not is_pin_mismatch(err) or attempt == _ATTEMPTS:
                    raise
            attempt += 1
            session = await self.keeper.arenew(than=session)

    async def aclose(self) -> None:
        for pool in self._pools.values():
            await pool.aclose()

"""How is one thing fetched over HTTP without trusting the server?  Bounded in every direction.

Time, bytes, attempts and redirects have limits; the environment's proxies are not looked at; a
redirect may only lead to a host that the settings name for the same service. The time limit is over
a whole attempt, so a server that sends a byte now and then does not hold it open.
"""

import asyncio
import math
import random
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, NoReturn, Self

import httpx

from attestation.fetch.config import FetchConfig, Service, is_loopback
from attestation.fetch.errors import FetchConfigError, FetchFailed, FetchReason, MissingCode

MAX_REDIRECTS: Final = 3
MAX_RETRY_AFTER_S: Final = 10.0
BACKOFF_S: Final = 0.5
MAX_BACKOFF_S: Final = 8.0
_TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request: ``what`` and ``code`` are for the error when it fails."""

    service: Service
    base: str
    path: str
    what: str
    code: MissingCode
    max_bytes: int
    params: Mapping[str, str] | None = None
    body: bytes | None = None
    content_type: str = ""

    @property
    def url(self) -> httpx.URL:
        """The whole address."""
        joined = self.base.rstrip("/") + self.path
        return httpx.URL(joined, params=dict(self.params) if self.params else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A 200: its body as sent, and its headers by lower-case name."""

    content: bytes
    headers: Mapping[str, str]


class _Transient(Exception):
    """Worth another attempt, not before ``retry_after_s``."""

    def __init__(self, failure: FetchFailed, retry_after_s: float = 0.0) -> None:
        super().__init__()
        self.failure = failure
        self.retry_after_s = retry_after_s


class Fetcher:
    """Blocking, one request at a time; not for use on an event loop's own thread.

    Owns one HTTP client from its first request until ``close``. ``seconds_left`` bounds everything
    together: no attempt begins or goes on beyond it.
    """

    def __init__(
        self,
        config: FetchConfig,
        *,
        rng: random.Random,
        sleep: Callable[[float], None],
        seconds_left: Callable[[], float] = lambda: math.inf,
    ) -> None:
        self.config = config
        self.num_asked = 0
        self._seconds_left = seconds_left
        self._rng = rng
        self._sleep = sleep
        self._lock = threading.Lock()
        self._runner: asyncio.Runner | None = None
        self._client: httpx.AsyncClient | None = None

    def fetch(self, asked: Asked) -> Answer:
        """Raises: FetchFailed."""
        for attempt in range(self.config.attempts):
            if self._seconds_left() <= 0:
                raise _failed(asked, asked.url, "timeout", "no time left to ask")
            self.num_asked += 1
            try:
                with self._lock:
                    return self._run(asked)
            except _Transient as err:
                if attempt + 1 == self.config.attempts or err.retry_after_s > MAX_RETRY_AFTER_S:
                    raise err.failure from err.failure.__cause__
                longest = min(MAX_BACKOFF_S, BACKOFF_S * 2**attempt)
                wait_s = max(err.retry_after_s, longest * (0.5 + self._rng.random() / 2))
                if wait_s >= self._seconds_left():
                    raise err.failure from err.failure.__cause__
                self._sleep(wait_s)
        raise AssertionError("at least one attempt")

    def close(self) -> None:
        """Closes the connections; a later request opens new ones."""
        with self._lock:
            if self._runner is not None:
                if self._client is not None:
                    self._runner.run(self._client.aclose())
                self._runner.close()
            self._runner, self._client = None, None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _run(self, asked: Asked) -> Answer:
        if self._runner is None:
            self._runner = asyncio.Runner()
        if self._client is None:
            self._client = _open_client(self.config)
        return self._runner.run(self._attempt(self._client, asked))

    async def _attempt(self, client: httpx.AsyncClient, asked: Asked) -> Answer:
        url = asked.url
        try:
            async with asyncio.timeout(min(self.config.timeout_s, self._seconds_left())):
                for _ in range(MAX_REDIRECTS + 1):
                    answer = await _exchange(client, asked, url)
                    if isinstance(answer, Answer):
                        return answer
                    url = self._redirected(asked, url, answer)
        except (TimeoutError, httpx.TimeoutException) as err:
            raise _Transient(_failed(asked, url, "timeout", "too slow", err)) from err
        except (httpx.HTTPError, httpx.InvalidURL) as err:
            said = f"no answer ({type(err).__name__})"
            raise _Transient(_failed(asked, url, "unreachable", said, err)) from err
        raise _failed(asked, url, "redirect", f"more than {MAX_REDIRECTS} redirects")

    def _redirected(self, asked: Asked, url: httpx.URL, location: str) -> httpx.URL:
        try:
            target = url.join(location)
        except httpx.InvalidURL as err:
            raise _failed(asked, url, "redirect", "to no address", err) from err
        allowed = {_place(httpx.URL(base)) for base in self.config.urls[asked.service]}
        if asked.body is not None or not location or target.userinfo:
            raise _failed(asked, url, "redirect", "a redirect that is not followed")
        if _place(target) not in allowed:
            raise _failed(asked, url, "redirect", "to a host that is not in the settings")
        return target


async def _exchange(client: httpx.AsyncClient, asked: Asked, url: httpx.URL) -> Answer | str:
    """The answer, or where it is said to be."""
    headers = {"content-type": asked.content_type} if asked.content_type else None
    method = "GET" if asked.body is None else "POST"
    async with client.stream(method, url, content=asked.body, headers=headers) as response:
        if response.status_code in _REDIRECTS:
            return str(response.headers.get("location", ""))
        if response.status_code != 200:
            _refuse(asked, url, response)
        if response.headers.get("content-encoding", "identity") != "identity":
            raise _failed(asked, url, "content", "an encoding that was not asked for")
        received = bytearray()
        async for chunk in response.aiter_raw():
            received += chunk
            if len(received) > asked.max_bytes:
                raise _failed(asked, url, "too_large", f"more than {asked.max_bytes} bytes")
        return Answer(content=bytes(received), headers=dict(response.headers))


def _open_client(config: FetchConfig) -> httpx.AsyncClient:
    context = ssl.create_default_context()
    if config.ca_file is not None:
        try:
            context.load_verify_locations(cafile=config.ca_file)
        except (OSError, ssl.SSLError) as err:
            raise FetchConfigError(f"{config.ca_file}: no CA certificates") from err
    return httpx.AsyncClient(
        trust_env=False,
        verify=context,
        proxy=config.proxy,
        timeout=config.timeout_s,
        follow_redirects=False,
        headers={"accept-encoding": "identity", "user-agent": "starshade"},
    )


def _place(url: httpx.URL) -> tuple[str, str, int]:
    """Scheme, host and port; plain HTTP counts on this machine alone."""
    scheme = url.scheme if url.scheme != "http" or is_loopback(url.host) else ""
    return scheme, url.host, url.port or {"https": 443, "http": 80}.get(url.scheme, 0)


def _refuse(asked: Asked, url: httpx.URL, response: httpx.Response) -> NoReturn:
    status = response.status_code
    if status in _TRANSIENT:
        failure = _failed(asked, url, "unreachable", f"status {status}")
        raise _Transient(failure, _retry_after_s(response.headers.get("retry-after", "")))
    if status in (404, 410):
        raise _failed(asked, url, "not_found", "the service does not have it")
    raise _failed(asked, url, "refused", f"status {status}")


def _retry_after_s(value: str) -> float:
    """Whole seconds; a date is not honoured and counts as the longest wait we take."""
    if not value:
        return 0.0
    return float(value) if value.isdecimal() and len(value) < 8 else MAX_RETRY_AFTER_S


def _failed(
    asked: Asked, url: httpx.URL, reason: FetchReason, said: str, cause: Exception | None = None
) -> FetchFailed:
    failure = FetchFailed(
        asked.code,
        reason,
        f"{asked.what}: {asked.service} at {url.host}: {said}",
    )
    failure.__cause__ = cause
    return failure

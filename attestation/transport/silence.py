"""Why did a server not give what it was asked for?  In plain words, and one word for programs."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator

import httpx

from attestation.errors import EvidenceUnavailable, Silence
from attestation.transport.pinned import is_pin_mismatch
from attestation.transport.url import EvidenceUrl


@contextlib.asynccontextmanager
async def answering(source: EvidenceUrl, timeout_s: float) -> AsyncIterator[None]:
    """Raises: EvidenceUnavailable for whatever keeps an answer from coming whole."""
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError as err:
        raise _unanswered(source.origin, f"nothing whole within {timeout_s:g} s") from err
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as err:
        raise _silence(source.origin, err) from err


def _silence(origin: str, err: Exception) -> EvidenceUnavailable:
    """In plain words: nobody is there, or who is there cannot be believed or is too slow."""
    if isinstance(err, httpx.TimeoutException):
        return _unanswered(origin, "too slow")
    if "CERTIFICATE_VERIFY_FAILED" in str(err):
        said = "its certificate is not trusted: does it need another CA file?"
        return _unanswered(origin, said, "not_trusted")
    if is_pin_mismatch(err):
        return _unanswered(origin, "its TLS key is not the one that was attested")
    causes = list(_causes(err))
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        said = f"nobody answers at {origin} (connection refused)"
        return EvidenceUnavailable(said, reason="no_answer")
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return _unanswered(origin, "nobody knows this name")
    return _unanswered(origin, type(err).__name__)


def _causes(err: BaseException) -> Iterator[BaseException]:
    """``err`` and what it came from; a library wraps the system's own word several times."""
    yield err
    inner = err.exceptions if isinstance(err, BaseExceptionGroup) else ()
    for cause in (*inner, err.__cause__ or err.__context__):
        if cause is not None:
            yield from _causes(cause)


def _unanswered(origin: str, said: str, reason: Silence = "no_answer") -> EvidenceUnavailable:
    return EvidenceUnavailable(f"no answer from {origin}: {said}", reason=reason)


def refused(source: EvidenceUrl, said: str, reason: Silence = "no_evidence") -> EvidenceUnavailable:
    what = reason.removeprefix("no_")
    return EvidenceUnavailable(f"no {what} from {source.origin}: {said}", reason=reason)

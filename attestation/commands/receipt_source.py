"""Where does the receipt of a command line come from when it is no file?  One authorised GET."""

import os
import ssl
from urllib.parse import urlsplit

import click

from attestation.commands.fetching import FetchOptions
from attestation.errors import EvidenceUnavailable
from attestation.fetch.errors import FetchConfigError
from attestation.receipt import MAX_RECEIPT_BYTES

TIMEOUT_S = 15.0
API_KEY = "STARSHADE_API_KEY"


def origin_of(url: str) -> str:
    """The gateway that serves the receipt at ``url``.  Raises: UsageError: it is no such URL."""
    try:
        parts = urlsplit(url)
        is_plain = url.isprintable() and not {"@", "?", "#", " "} & set(url)
        if parts.scheme == "https" and parts.hostname and is_plain and "/receipts/" in parts.path:
            return f"https://{parts.netloc}{parts.path.partition('/receipts/')[0]}"
    except ValueError:
        pass
    raise click.UsageError("want a URL like https://127.0.0.1:8443/v1/receipts/ID")


def api_key() -> str:
    """Raises: UsageError: there is none in the environment."""
    key = os.environ.get(API_KEY, "")  # noqa: TID251 - the process edge
    if not key or not key.isascii() or not key.isprintable():
        raise click.UsageError(
            f"a receipt is read with the key that made the request: set {API_KEY}"
        )
    return key


def fetch_receipt(url: str, fetching: FetchOptions, *, key: str) -> bytes:
    """The bytes of the receipt, unverified, and at most one more than they may be.

    Raises: EvidenceUnavailable; FetchConfigError: no CA certificates in the CA file.
    """
    import httpx  # slow to import, and files need none

    if fetching.is_offline:
        raise click.UsageError("--offline opens no socket, so no URL can be asked")
    origin_of(url)
    client = httpx.Client(
        trust_env=False,
        verify=_context(fetching),
        proxy=fetching.config.proxy,
        timeout=TIMEOUT_S,
        headers={"authorization": f"Bearer {key}", "accept-encoding": "identity"},
    )
    received = bytearray()
    try:
        with client, client.stream("GET", url) as response:
            for chunk in response.iter_raw():
                received += chunk
                if len(received) > MAX_RECEIPT_BYTES:
                    break
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as err:
        from attestation.transport import unanswered

        raise unanswered(origin_of(url), err) from err
    if response.status_code != 200:
        raise EvidenceUnavailable(
            f"no receipt from {origin_of(url)}: HTTP {response.status_code}", was_answered=True
        )
    return bytes(received)


def _context(fetching: FetchOptions) -> ssl.SSLContext:
    ca_file = fetching.config.ca_file
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as err:
        raise FetchConfigError(f"{ca_file}: no CA certificates") from err
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context

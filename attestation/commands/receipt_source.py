"""Where does the receipt of a command line come from when it is no file?  One authorised GET.

The gateway was judged before: the API key goes to a TLS key that its Evidence attests, or nowhere.
"""

import os
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from attestation.commands.fetching import FetchOptions

if TYPE_CHECKING:
    from attestation.transport import EvidenceUrl

API_KEY = "STARSHADE_API_KEY"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptUrl:
    """One receipt, and the gateway that serves it."""

    source: "EvidenceUrl"
    receipt_id: str

    @property
    def gateway(self) -> str:
        return f"{self.source.origin}{self.source.path_prefix}"


def parse_receipt_url(url: str) -> ReceiptUrl:
    """Raises: UsageError: it is no such URL."""
    from attestation.transport import parse_evidence_url  # slow to import, and files need none

    try:
        source = parse_evidence_url(url)
        prefix, _, receipt_id = source.path_prefix.partition("/receipts/")
        if not receipt_id:
            raise ValueError
    except ValueError as err:
        raise click.UsageError("want a URL like https://127.0.0.1:8443/v1/receipts/ID") from err
    return ReceiptUrl(source=source.with_prefix(prefix), receipt_id=receipt_id)


def require_api_key() -> str:
    """Raises: UsageError: there is none in the environment."""
    key = os.environ.get(API_KEY, "")  # noqa: TID251 - the process edge
    if not key or not key.isascii() or not key.isprintable():
        raise click.UsageError(
            f"a receipt is read with the key that made the request: set {API_KEY}"
        )
    return key


def fetch_receipt(
    url: ReceiptUrl, fetching: FetchOptions, *, key: str, pins: Collection[bytes]
) -> bytes:
    """The bytes of the receipt, unverified; ``pins`` are the TLS keys that its gateway attests.

    Raises: EvidenceUnavailable; FetchConfigError: no CA certificates in the CA file.
    """
    from attestation import transport

    return transport.fetch_receipt(
        url.source,
        url.receipt_id,
        api_key=key,
        pins=pins,
        ca_file=fetching.config.ca_file,
        proxy=fetching.config.proxy,
        client_certificate=fetching.client_certificate,
    )

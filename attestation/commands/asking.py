"""Where does the Evidence of a command line come from: a file, or a gateway that is asked?"""

import re
from typing import IO, TYPE_CHECKING, BinaryIO, cast

import click

from attestation.commands.fetching import FetchOptions
from attestation.model import Nonce

if TYPE_CHECKING:
    from attestation.transport import Delivery

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


class EvidenceSource(click.ParamType[BinaryIO | str]):
    """A file that was opened, '-' for standard input, or a URL as it was given."""

    name = "evidence"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> BinaryIO | str:
        if isinstance(value, str) and _SCHEME.match(value):
            return value
        file = cast("str | IO[bytes]", value)
        return cast("BinaryIO", click.File("rb").convert(file, param, ctx))


def require_askable(fetching: FetchOptions, *, kind: str | None, tls_key: str | None) -> None:
    """No option contradicts asking a gateway.  Raises: UsageError."""
    if fetching.is_offline:
        raise click.UsageError("--offline opens no socket, so no URL can be asked")
    if kind not in (None, "bundle"):
        raise click.UsageError(f"a URL gives a bundle, so it cannot be of --kind {kind}")
    if tls_key is not None:
        raise click.UsageError("--tls-key is for files: the key of a URL is its connection's own")


def ask(url: str, fetching: FetchOptions, *, nonce: Nonce, node: str | None) -> "Delivery":
    """What the gateway at ``url`` answers; its path may be left out.

    Raises: UsageError: not an https URL; EvidenceUnavailable; FetchConfigError.
    """
    from attestation import transport  # brings an HTTP client

    try:
        source = transport.parse_evidence_url(url)
    except ValueError as err:
        raise click.UsageError(str(err)) from err
    return transport.fetch_evidence(
        source if source.path_prefix else source.with_prefix(transport.API_PREFIX),
        nonce=nonce,
        node=node,
        ca_file=fetching.config.ca_file,
        proxy=fetching.config.proxy,
        client_certificate=fetching.client_certificate,
    )

"""Where is a gateway asked, and for what?  Its origin, and the paths below it."""

from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import urlsplit

API_PREFIX: Final = "/v1"  # where a gateway's API is
KEYS_PATH: Final = "/.well-known/ohttp-gateway"  # [RFC 9540 sec. 5]
DEFAULT_PORT: Final = 443


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceUrl:
    """Where ``{path_prefix}/attestation`` is served; always https."""

    host: str
    port: int
    path_prefix: str

    @property
    def origin(self) -> str:
        """As people write it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"https://{host}:{self.port}"

    def with_prefix(self, path_prefix: str) -> "EvidenceUrl":
        """The same server, another path."""
        return replace(self, path_prefix=path_prefix)


def parse_evidence_url(url: str) -> EvidenceUrl:
    """``https://host[:port][/prefix]``; port 443 unless it says another.

    Raises: ValueError, which never repeats a password.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, DEFAULT_PORT if parts.port is None else parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, 0
    is_plain = url.isprintable() and " " not in url and not {"@", "?", "#"} & set(url)
    if parts.scheme != "https" or not host or not port or not is_plain:
        raise ValueError("an https URL is needed, like https://127.0.0.1:8443/v1")
    return EvidenceUrl(host=host, port=port, path_prefix=parts.path.rstrip("/"))

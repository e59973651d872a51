"""Which values may a configuration key hold?  A rule returns its complaint, or None."""

import ipaddress
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from urllib.parse import SplitResult, urlsplit

Rule = Callable[[object], str | None]

_HOSTNAME = re.compile(r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_]([a-z0-9_-]{0,62}))*")
_IDENTIFIER = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_DATABASES = ("sqlite", "postgresql+psycopg")


def anything(value: object) -> str | None:
    return None


def not_empty(value: object) -> str | None:
    return None if str(value).strip() else "must not be empty"


def between(low: int, high: int) -> Rule:
    """An integer with low <= value <= high."""

    def check(value: object) -> str | None:
        in_range = isinstance(value, int) and low <= value <= high
        return None if in_range else f"want a number from {low} to {high}"

    return check


port: Rule = between(1, 65_535)


def one_of(*choices: str) -> Rule:
    def check(value: object) -> str | None:
        return None if value in choices else f"want one of {', '.join(choices)}"

    return check


def each(rule: Rule) -> Rule:
    """At least one item, and every item follows the rule."""

    def check(value: object) -> str | None:
        items = value if isinstance(value, Sequence) else ()
        if not items:
            return "want at least one"
        return next((complaint for item in items if (complaint := rule(item))), None)

    return check


def host(value: object) -> str | None:
    """An IP address, or a host name as it may stand in a certificate."""
    text = str(value)
    if is_ip(text) or _HOSTNAME.fullmatch(text):
        return None
    return "want an IP address or a lower-case host name"


def loopback_host(value: object) -> str | None:
    text = str(value)
    if text == "localhost" or (is_ip(text) and ipaddress.ip_address(text).is_loopback):
        return None
    return "want a loopback address such as 127.0.0.1: this service has no sign-in"


def identifier(value: object) -> str | None:
    if _IDENTIFIER.fullmatch(str(value)):
        return None
    return "want up to 64 of a-z, 0-9, '.', '_', '-', starting with a letter or digit"


def http_url(value: object) -> str | None:
    parts = _split(value)
    if parts and parts.scheme in ("http", "https") and parts.hostname and not parts.username:
        with suppress(ValueError):  # read first here: no number, or none of a port
            _ = parts.port
            return None
    return "want an http:// or https:// URL without credentials"


def endorser_url(value: object) -> str | None:
    """Where endorsements are fetched from, or the proxy on the way."""
    from attestation.fetch.config import url_problem  # here: `--help` does without attestation

    return url_problem(str(value)) or None


def endorser_urls(value: object) -> str | None:
    """Several of them, in the order in which they are tried; none is the vendor's own."""
    from attestation.fetch.config import MAX_URLS

    if isinstance(value, Sequence) and len(value) > MAX_URLS:
        return f"want at most {MAX_URLS} addresses"
    return each(endorser_url)(value) if value else None


def worker_address(value: object) -> str | None:
    """No https: what goes there is sealed, and the key to it attested."""
    text, parts = str(value), _split(value)
    is_url = (
        parts is not None
        and text == f"http://{parts.netloc}"
        and http_url(text) is None
        and bool(parts.port)
        and host(parts.hostname) is None
    )
    is_path = text.startswith("unix:/") and len(text) > len("unix:/")
    return None if is_url or is_path else "want unix:/absolute/path or http://host:port"


def upstream_address(value: object) -> str | None:
    """Plaintext goes there, so it stays on this machine."""
    text = str(value)
    parts = _split(text)
    is_near = parts is not None and loopback_host(parts.hostname or "") is None
    if text.startswith("unix:/") or (text.startswith("http:") and not http_url(text) and is_near):
        return None
    return "want unix:/absolute/path or http://127.0.0.1:PORT: prompts go there in clear"


def sha256(value: object) -> str | None:
    text = str(value)
    is_digest = len(text) == 64 and set(text) <= set("0123456789abcdef")
    return None if is_digest else "want 64 lower-case hex digits"


def database_url(value: object) -> str | None:
    """A database in memory would forget each key and receipt when the process ends."""
    parts = _split(value)
    if parts and parts.scheme == "sqlite":
        is_named = parts.path not in ("", "/", "/:memory:")
        is_file = is_named and not parts.netloc and not parts.query
        return None if is_file else "want sqlite:///PATH of a file, without options (`?` is %3F)"
    if parts and parts.scheme in _DATABASES:
        with suppress(ValueError):  # read first here: no number, or none of a port
            _ = parts.port
            return None
        return "want a number as the port"
    return f"want a URL that starts with {' or '.join(f'{name}://' for name in _DATABASES)}"


def is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _split(value: object) -> SplitResult | None:
    try:
        return urlsplit(str(value))
    except ValueError:
        return None

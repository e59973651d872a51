"""Where are endorsements fetched from, through what, and for how long is one attempt?

One frozen tree, from TOML and flags at a process edge. Addresses never hold credentials, and plain
HTTP is for this machine alone; trust never comes from an address, since everything is signed.
"""

import ipaddress
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, get_args
from urllib.parse import urlsplit

from attestation.fetch.errors import FetchConfigError

Service = Literal["pcs", "root_crl", "kds", "rim", "ocsp", "nras"]
TcbUpdate = Literal["standard", "early"]

MAX_CONFIG_BYTES = 64 * 1024
MAX_URLS = 8
MAX_URL_CHARS = 2048
MAX_TIMEOUT_S = 300
MAX_ATTEMPTS = 10
MAX_CACHE_BYTES = 64 * 1024 * 1024
_PCCS_ROOT_CRL = "/sgx/certification/v4/rootcacrl"
_PLACE = re.compile(r"(?:\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?\]|[A-Za-z0-9._-]+)(?::[0-9]*)?")
_NUMBER = "tcb_evaluation_data_number"
REFRESH_AFTER_S = 24 * 3600  # a CRL is good for a month, but what it lists may be news


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchConfig:
    """``urls`` are tried in order: a service first, then its mirrors.

    ``tcb_evaluation_data_number`` asks Intel for that one TCB recovery instead of ``tcb_update``.
    """

    urls: Mapping[Service, tuple[str, ...]] = field(default_factory=lambda: dict(DEFAULT_URLS))
    tcb_update: TcbUpdate = "standard"
    tcb_evaluation_data_number: int | None = None
    proxy: str | None = None
    ca_file: Path | None = None
    timeout_s: int = 20
    attempts: int = 3
    refresh_after_s: int = REFRESH_AFTER_S
    max_cache_bytes: int = MAX_CACHE_BYTES

    @property
    def tcb_edition(self) -> str:
        """Which TCB data is asked for: "standard", "early" or a TCB evaluation data number."""
        number = self.tcb_evaluation_data_number
        return self.tcb_update if number is None else str(number)

    def with_urls(self, service: Service, urls: tuple[str, ...]) -> "FetchConfig":
        """Other addresses for one service; none leaves it as it is.

        Raises: FetchConfigError.
        """
        if not urls:
            return self
        problems = _url_problems(service, urls)
        if problems:
            raise FetchConfigError("; ".join(problems))
        return replace(self, urls={**self.urls, service: urls})

    def with_pcs(self, urls: tuple[str, ...]) -> "FetchConfig":
        """Other provisioning services, which have the root CRL at hand before Intel is asked.

        Raises: FetchConfigError.
        """
        if not urls:
            return self
        own = tuple(url.rstrip("/") + _PCCS_ROOT_CRL for url in urls)
        root_crls = (*own, *self.urls["root_crl"])[:MAX_URLS]
        return self.with_urls("pcs", urls).with_urls("root_crl", root_crls)

    def with_network(self, *, proxy: str | None, ca_file: Path | None) -> "FetchConfig":
        """Another proxy or further CA; None leaves it as it is.

        Raises: FetchConfigError.
        """
        problems = [] if proxy is None else _url_problems("proxy", (proxy,))
        if problems:
            raise FetchConfigError("; ".join(problems))
        return replace(self, proxy=proxy or self.proxy, ca_file=ca_file or self.ca_file)


DEFAULT_URLS: Mapping[Service, tuple[str, ...]] = {
    "pcs": ("https://api.trustedservices.intel.com",),
    "root_crl": ("https://certificates.trustedservices.intel.com/IntelSGXRootCA.der",),
    "kds": ("https://kdsintf.amd.com",),
    "rim": ("https://rim.attestation.nvidia.com",),
    "ocsp": ("https://ocsp.ndis.nvidia.com",),
    "nras": ("https://nras.attestation.nvidia.com",),
}


def load_fetch_config(path: Path) -> FetchConfig:
    """The settings of a TOML file; what it leaves out has its default.

    Raises: FetchConfigError: unreadable, not TOML, unknown keys, bad values.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_CONFIG_BYTES + 1)
        document = tomllib.loads(data.decode("utf-8"))
    except (OSError, ValueError) as err:
        raise FetchConfigError(f"{path}: not a readable TOML file") from err
    if len(data) > MAX_CONFIG_BYTES:
        raise FetchConfigError(f"{path}: more than {MAX_CONFIG_BYTES} bytes")
    return parse_fetch_config(document)


def parse_fetch_config(document: Mapping[str, object]) -> FetchConfig:
    """The settings of a parsed document; docs/collateral.md lists them.

    Raises: FetchConfigError: every problem at once.
    """
    reader = _Reader()
    urls = dict(DEFAULT_URLS)
    pcs = reader.table(document, "pcs", {"urls", "root_crl_urls", "update", _NUMBER})
    others: tuple[Service, ...] = ("kds", "rim", "ocsp", "nras")
    urls["pcs"] = reader.urls(pcs, "pcs", "urls", urls["pcs"])
    urls["root_crl"] = reader.urls(pcs, "pcs", "root_crl_urls", urls["root_crl"])
    for service in others:
        table = reader.table(document, service, {"urls"})
        urls[service] = reader.urls(table, service, "urls", urls[service])
    network = reader.table(document, "network", {"proxy", "ca_file", "timeout_s", "attempts"})
    cache = reader.table(document, "cache", {"refresh_after_s", "max_bytes"})
    reader.unknown("", document, {"pcs", *others, "network", "cache"})
    update = pcs.get("update", "standard")
    if update not in get_args(TcbUpdate):
        reader.problems.append("pcs.update: neither standard nor early")
    proxy, ca_file = (reader.text(network, "network", key) for key in ("proxy", "ca_file"))
    if proxy is not None:
        reader.problems += _url_problems("network.proxy", (proxy,))
    config = FetchConfig(
        urls=urls,
        tcb_update="early" if update == "early" else "standard",
        tcb_evaluation_data_number=(
            reader.number(pcs, "pcs", _NUMBER, 0, maximum=2**31) if _NUMBER in pcs else None
        ),
        proxy=proxy,
        ca_file=None if ca_file is None else Path(ca_file),
        timeout_s=reader.number(network, "network", "timeout_s", 20, maximum=MAX_TIMEOUT_S),
        attempts=reader.number(network, "network", "attempts", 3, maximum=MAX_ATTEMPTS),
        refresh_after_s=reader.number(
            cache, "cache", "refresh_after_s", REFRESH_AFTER_S, maximum=2**31
        ),
        max_cache_bytes=reader.number(cache, "cache", "max_bytes", MAX_CACHE_BYTES, maximum=2**40),
    )
    if reader.problems:
        raise FetchConfigError("; ".join(reader.problems))
    return config


def is_loopback(host: str) -> bool:
    """This machine: ``localhost`` or a loopback address, nothing that a resolver decides."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class _Reader:
    """Reads values and collects every problem instead of stopping at the first."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def table(
        self, document: Mapping[str, object], name: str, known: set[str]
    ) -> Mapping[str, object]:
        value = document.get(name, {})
        if not isinstance(value, Mapping):
            self.problems.append(f"{name}: not a table")
            return {}
        self.unknown(f"{name}.", value, known)
        return value

    def unknown(self, prefix: str, table: Mapping[str, object], known: set[str]) -> None:
        self.problems += [f"{prefix}{key}: unknown" for key in sorted(table.keys() - known)]

    def urls(
        self, table: Mapping[str, object], name: str, key: str, default: tuple[str, ...]
    ) -> tuple[str, ...]:
        value = table.get(key)
        if value is None:
            return default
        if not isinstance(value, list) or not all(isinstance(url, str) for url in value):
            self.problems.append(f"{name}.{key}: not a list of addresses")
            return default
        self.problems += _url_problems(f"{name}.{key}", tuple(value))
        return tuple(value)

    def text(self, table: Mapping[str, object], name: str, key: str) -> str | None:
        value = table.get(key)
        if value is None or (isinstance(value, str) and value):
            return value
        self.problems.append(f"{name}.{key}: not a text")
        return None

    def number(
        self, table: Mapping[str, object], name: str, key: str, default: int, *, maximum: int
    ) -> int:
        value = table.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= maximum:
            self.problems.append(f"{name}.{key}: not a number of 1..{maximum}")
            return default
        return value


def _url_problems(name: str, urls: tuple[str, ...]) -> list[str]:
    if not 1 <= len(urls) <= MAX_URLS:
        return [f"{name}: want 1 to {MAX_URLS} addresses"]
    return [f"{name}: {problem}" for url in urls if (problem := url_problem(url))]


def url_problem(url: str) -> str:
    """What is wrong with an address, without repeating it: it may hold a credential."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return "not an address"
    if not host or not url.isascii() or not url.isprintable() or " " in url:
        return "not an address"
    if "@" in parts.netloc:
        return "an address must not hold credentials"
    is_number = host.replace(".", "").isdigit()
    if _PLACE.fullmatch(parts.netloc) is None or (is_number and not _is_ip(host)):
        return "not an address"
    if len(url) > MAX_URL_CHARS:
        return f"an address of more than {MAX_URL_CHARS} characters"
    if parts.query or parts.fragment or "?" in url or "#" in url:
        return "an address has no query and no fragment"
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host)):
        return "https is required beyond this machine"
    return ""

"""How does a command line say where endorsements come from?  Shared by `fetch` and `verify`."""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from attestation.commands.common import FILE, certificate_pair
from attestation.fetch.cache import default_folder
from attestation.fetch.config import FetchConfig, Service, load_fetch_config
from attestation.fetch.endorser import Endorser, open_endorser
from attestation.fetch.errors import FetchConfigError

R = TypeVar("R")

_FOLDER = click.Path(file_okay=False, path_type=Path)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchOptions:
    """Where to look, and whether to look beyond the cache at all."""

    config: FetchConfig
    cache_folder: Path
    is_offline: bool
    is_refreshing: bool
    client_certificate: tuple[Path, Path] | None = None  # for a gateway that wants to see one

    def endorser(self, at: datetime) -> AbstractContextManager[Endorser]:
        """Gets endorsements as of ``at``."""
        return open_endorser(
            self.config,
            self.cache_folder,
            at=at,
            now=datetime.now(UTC),  # noqa: TID251 - the process edge
            is_offline=self.is_offline,
            is_refreshing=self.is_refreshing,
        )


def fetch_options(command: Callable[..., R]) -> Callable[..., R]:
    """Adds the options; the command receives them as ``fetching``, a FetchOptions."""

    @wraps(command)
    def wrapped(
        *args: Any,
        offline: bool,
        refresh: bool,
        fetch_config: Path | None,
        pcs: tuple[str, ...],
        kds: tuple[str, ...],
        rim: tuple[str, ...],
        ocsp: tuple[str, ...],
        proxy: str | None,
        ca_file: Path | None,
        cache_dir: Path | None,
        **kwargs: Any,
    ) -> R:
        try:
            config = FetchConfig() if fetch_config is None else load_fetch_config(fetch_config)
            for service, urls in (("kds", kds), ("rim", rim), ("ocsp", ocsp)):
                config = config.with_urls(cast("Service", service), urls)
            config = config.with_pcs(pcs).with_network(proxy=proxy, ca_file=ca_file)
        except FetchConfigError as err:
            raise click.UsageError(str(err)) from err
        options = FetchOptions(
            config=config,
            cache_folder=cache_dir or _default_cache_folder(),
            is_offline=offline,
            is_refreshing=refresh,
        )
        return command(*args, fetching=options, **kwargs)

    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


def client_certificate_options(command: Callable[..., R]) -> Callable[..., R]:
    """Adds --client-cert and --client-key to what ``fetch_options`` gives; stands below it."""

    @wraps(command)
    def wrapped(
        *args: Any,
        fetching: FetchOptions,
        client_cert: Path | None,
        client_key: Path | None,
        **kwargs: Any,
    ) -> R:
        if pair := certificate_pair(client_cert, client_key):
            fetching = replace(fetching, client_certificate=pair)
        return command(*args, fetching=fetching, **kwargs)

    shown = "Show this to a gateway that wants a client certificate."
    wrapped = click.option("--client-key", type=FILE, help="Its key, in PEM.")(wrapped)
    return click.option("--client-cert", type=FILE, help=shown)(wrapped)


def _default_cache_folder() -> Path:
    return default_folder(os.environ.get("XDG_CACHE_HOME"))  # noqa: TID251 - the process edge


_OPTIONS = (
    click.option(
        "--offline", is_flag=True, help="Use what is given and what is cached; open no socket."
    ),
    click.option("--refresh", is_flag=True, help="Ask again for what is cached."),
    click.option("--fetch-config", type=FILE, help="Addresses and limits, in TOML."),
    *(
        click.option(
            f"--{service}",
            multiple=True,
            metavar="URL",
            help=f"{what} is here; repeat it for mirrors.",
        )
        for service, what in (
            ("pcs", "Intel's PCS, or a PCCS,"),
            ("kds", "AMD's KDS"),
            ("rim", "NVIDIA's RIM service"),
            ("ocsp", "NVIDIA's OCSP responder"),
        )
    ),
    click.option("--proxy", metavar="URL", help="Fetch through this HTTP proxy."),
    click.option("--ca-file", type=FILE, help="Further CA certificates for TLS, in PEM."),
    click.option(
        "--cache-dir", type=_FOLDER, help="[default: $XDG_CACHE_HOME/starshade/collateral]"
    ),
)

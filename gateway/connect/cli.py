"""`starshade connect`: verify a gateway, show the verdict, then serve its API on this machine.

1. Which gateway, policy and key: what was given, else this machine's own installation.
2. Verify; a bad verdict is shown, and nothing is served.
3. Serve, verifying anew before the verdict ends.
"""

import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, cast

import click

from attestation.commands.common import certificate_pair
from attestation.fetch.config import url_problem
from gateway.cli_support import ExitCode, Failure, config_options, read_config, say
from gateway.config_rules import loopback_host
from gateway.connect.target import KEY_VARIABLE, Target, find_key, require_started
from gateway.faults import os_error_text
from gateway.snippets import base_url
from gateway.whereabouts import as_it_runs

if TYPE_CHECKING:
    from attestation.keyset import Mode
    from attestation.transport import EvidenceRefused, Session, SessionKeeper
    from gateway.connect.app import ConnectApp

DEFAULT_PORT: Final = 8445
DRAIN_S: Final = 5
_MODES: Final = ("terminate", "pass-through")
_FILE: Final = click.Path(dir_okay=False, path_type=Path)


@click.command(
    epilog="\b\nExample:\n  starshade connect https://models.example.org/v1 --ca-file ca.pem"
)
@click.argument("url", required=False)
@click.option("--policy", help="production (default for a URL), development or a TOML file.")
@click.option("--ca-file", type=_FILE, help="CA of its certificate.  [default: the system's]")
@click.option("--client-cert", type=_FILE, help="Show this to a gateway that wants one.")
@click.option("--client-key", type=_FILE, help="Its key, in PEM.")
@click.option("--mode", type=click.Choice(_MODES), help="Refuse a gateway in another mode.")
@click.option("--weights", multiple=True, metavar="SHA256", help="Refuse other models. Repeat it.")
@click.option("--key-file", type=_FILE, help="API key for requests without one of their own.")
@click.option("--proxy", metavar="URL", help="Reach the gateway through this HTTP proxy.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Loopback address.")
@click.option(
    "--port", type=click.IntRange(1, 65535), default=DEFAULT_PORT, show_default=True,
    help="Port to listen on.",
)  # fmt: skip
@config_options
def connect(
    url: str | None,
    policy: str | None,
    ca_file: Path | None,
    client_cert: Path | None,
    client_key: Path | None,
    mode: str | None,
    weights: tuple[str, ...],
    key_file: Path | None,
    proxy: str | None,
    host: str,
    port: int,
    config_file: Path | None,
    state_dir: Path | None,
    cache_dir: Path | None,
) -> None:
    """Verify the gateway at URL, then serve its API here, sealed for any program.

    Without URL it is the gateway of this machine, by its ca.pem, its policy and its kept key.
    Programs use http://127.0.0.1:8445/v1 as their OpenAI base URL. A request without a Starshade
    key of its own gets the one of --key-file, else of $STARSHADE_API_KEY. Any process of this
    machine can use the port; web pages cannot.

    Exit codes: 0 stopped, 2 usage, 10 the evidence is refused, 20 unsupported, 30 malformed, 40 the
    gateway or its collateral cannot be reached.
    """
    if problem := loopback_host(host):
        raise click.BadParameter(problem, param_hint="--host")
    if proxy is not None and (problem := url_problem(proxy)):
        raise click.BadParameter(problem, param_hint="--proxy")
    given = certificate_pair(client_cert, client_key)
    flags = {"policy": policy, "state_dir": state_dir, "cache_dir": cache_dir}
    config = read_config(config_file, flags, default_policy="development")
    if url is None and ca_file is None:
        require_started(config)
    target = Target(
        url=url or base_url(as_it_runs(config)),
        policy=policy or ("production" if url else config.policy),
        ca_file=ca_file or (None if url else config.paths.ca_cert),
        mode=cast("Mode | None", mode),
        weights=weights,
        proxy=proxy,
        client_certificate=given or (None if url else config.paths.client_certificate),
        collateral_folder=config.paths.collateral_dir,
        key=find_key(key_file, None if url else config),
    )
    run(target, host=host, port=port)


def run(target: Target, *, host: str, port: int) -> None:
    """Until SIGTERM or Ctrl-C. Raises: Failure."""
    from gateway.connect.first_verdict import keeper_of, verify
    from gateway.servers import run_app
    from gateway.sockets import SocketTaken, listen_tcp
    from telemetry.logs import configure_logging

    hooks = _Hooks()
    keeper = keeper_of(target, on_refused=hooks.on_refused)
    session = verify(keeper, target)
    try:
        listener = listen_tcp(host, port)
    except (SocketTaken, OSError) as err:
        said = os_error_text(err) if isinstance(err, OSError) else str(err)
        raise Failure(
            f"cannot listen on {host} port {port}: {said}",
            exit_code=ExitCode.CHECK_FAILED,
            code="address_in_use",
            next_step="choose another port with --port",
        ) from err
    configure_logging()
    for number in (signal.SIGTERM, signal.SIGINT):  # the server raises it again once it stopped
        signal.signal(number, _exit)
    hooks.app = _app(keeper, target)
    _announce(target, session, host, port)
    run_app(hooks.app, listener, drain_s=DRAIN_S)


@dataclass(slots=True)
class _Hooks:
    """Joins keeper and app, each of which needs the other."""

    app: "ConnectApp | None" = None

    def on_refused(self, refused: "EvidenceRefused") -> None:
        if self.app is not None:
            self.app.on_refused(refused)


def _app(keeper: "SessionKeeper", target: Target) -> "ConnectApp":
    from attestation.transport import async_client_over, gateway_source
    from gateway.connect.app import ConnectApp
    from gateway.connect.forward import Forwarder
    from gateway.connect.streams import Streams
    from gateway.connect.watch import Watch
    from gateway.process import utc_now

    forwarder = Forwarder(
        client=async_client_over(
            keeper,
            target.url,
            ca_file=target.ca_file,
            proxy=target.proxy,
            client_certificate=target.client_certificate,
        ),
        target=gateway_source(target.url),
        key=target.key,
        streams=Streams(),
    )
    return ConnectApp(forwarder, keeper, Watch(keeper=keeper, utc_now=utc_now, tell=say))


def _announce(target: Target, session: "Session", host: str, port: int) -> None:
    shown = f"[{host}]" if ":" in host else host
    keys = f"requests without a key of their own get yours ({KEY_VARIABLE} or --key-file)"
    say(
        f"\nverified {target.url} ({session.gateway.mode}), good until "
        f"{session.not_after:%H:%M:%S} UTC and renewed before that\n"
        f"listening: OPENAI_BASE_URL=http://{shown}:{port}/v1\n"
        + (keys if target.key else "requests need an API key of their own")
        + "\nCtrl-C stops"
    )


def _exit(number: int, frame: FrameType | None) -> None:
    sys.exit(ExitCode.SUCCESS)

"""`starshade observatory`: serve dashboard, JSON API and OTLP ingest from one telemetry.db."""

import os
from pathlib import Path

import click
import uvicorn

from telemetry.db.url import sqlite_url
from telemetry.logs import configure_logging
from web.app import create_app
from web.security import LOOPBACK_HOSTS, host_name

STOP_S = 5


@click.command()
@click.option(
    "--host",
    envvar="STARSHADE_OBSERVATORY__HOST",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on.",
)
@click.option(
    "--port",
    envvar="STARSHADE_OBSERVATORY__PORT",
    type=click.IntRange(0, 65535),
    default=8444,
    show_default=True,
    help="Port to listen on.",
)
@click.option(
    "--database-url",
    envvar="STARSHADE_OBSERVATORY__DATABASE_URL",
    default=None,
    help="SQLite or PostgreSQL URL.  [default: telemetry.db in the state folder]",
)
@click.option(
    "--state-dir",
    envvar="STARSHADE_STATE_DIR",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    help="State folder.  [default: $XDG_STATE_HOME/starshade]",
)
def observatory(host: str, port: int, database_url: str | None, state_dir: Path | None) -> None:
    """Serve the dashboard, its JSON API and the OTLP ingest."""
    url = database_url or sqlite_url((state_dir or _default_state_dir()) / "telemetry.db")
    if host_name(host) not in LOOPBACK_HOSTS:
        click.echo(
            f"warning: {host} is not loopback, and the observatory asks no one who they are",
            err=True,
        )
    configure_logging()
    uvicorn.run(
        create_app(url, hosts=(host,)),
        host=host,
        port=port,
        log_config=None,
        server_header=False,
        access_log=False,
        ws="none",
        timeout_graceful_shutdown=STOP_S,
    )


def _default_state_dir() -> Path:
    home = os.environ.get("XDG_STATE_HOME")  # noqa: TID251 - a process edge
    return (Path(home) if home else Path.home() / ".local" / "state") / "starshade"


if __name__ == "__main__":
    observatory()

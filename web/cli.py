"""How is the observatory served: dashboard, JSON API and OTLP ingest from one telemetry.db?

`starshade observatory` reads the configuration and calls `run_observatory`; the command here needs
none, and takes all that it does not get from its options for granted.
"""

from pathlib import Path

import click
import uvicorn

from telemetry.db.url import sqlite_url
from telemetry.logs import configure_logging
from web.app import create_app
from web.security import LOOPBACK_HOSTS, host_name

STOP_S = 5


def run_observatory(*, database_url: str, host: str, port: int) -> None:
    """Serves until SIGTERM or SIGINT; ends the process when it cannot start."""
    if host_name(host) not in LOOPBACK_HOSTS:
        click.echo(
            f"warning: {host} is not loopback, and the observatory asks no one who they are",
            err=True,
        )
    uvicorn.run(
        create_app(database_url, hosts=(host,)),
        host=host,
        port=port,
        log_config=None,
        server_header=False,
        access_log=False,
        ws="none",
        timeout_graceful_shutdown=STOP_S,
    )


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8444,
    show_default=True,
    help="Port to listen on.",
)
@click.option(
    "--state-dir",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Folder of telemetry.db.",
)
def observatory(host: str, port: int, state_dir: Path) -> None:
    """Serve the dashboard, its JSON API and the OTLP ingest."""
    configure_logging()
    run_observatory(database_url=sqlite_url(state_dir / "telemetry.db"), host=host, port=port)


if __name__ == "__main__":
    observatory()

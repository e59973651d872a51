"""`starshade`: which commands are there, and where does each one live?

A command's module is imported when the command runs, never before: `starshade --help` must not
wait for torch.
"""

from pathlib import Path

import click

from gateway.cli_support import LazyGroup, config_options, read_config

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def _show_version(ctx: click.Context, _option: click.Parameter, is_asked: bool) -> None:
    if not is_asked:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        click.echo(f"starshade {version('starshade')}")
    except PackageNotFoundError:
        click.echo("starshade (run from its source folder, not installed)")
    ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings=_CONTEXT,
    lazy={
        "up": ("gateway.up:up", "Start a worker, the gateway and the dashboard on this machine."),
        "attest": ("attestation.cli:attest", "Verify evidence and explain the verdict."),
        "audit": ("gateway.audit_cli:audit", "Show the audit log, and check that it is whole."),
        "receipt": (
            "attestation.commands.receipt:receipt",
            "Check the signed receipts of requests.",
        ),
        "models": ("gateway.models_cli:models", "Fetch and check models."),
        "connect": (
            "gateway.connect.cli:connect",
            "Verify a gateway and seal for every program on this machine.",
        ),
        "demo": (
            "gateway.demo.cli:demo",
            "Show what happens when somebody interferes with a worker.",
        ),
        "doctor": (
            "gateway.doctor.cli:doctor",
            "Say what is wrong with this set-up, and what next.",
        ),
        "keys": ("gateway.keys_cli:keys", "Make, show, rotate and revoke API keys."),
        "bench": ("gateway.bench.cli:bench", "Measure how long things take on this machine."),
        "load": (
            "loadtest.cli:load",
            "Drive the gateway with a load profile and store what it answered.",
        ),
    },
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version and exit.",
)
@click.option("--watch-fd", type=int, hidden=True, help="End when this pipe closes.")
def main(watch_fd: int | None) -> None:
    """A confidential inference gateway and its observatory."""
    if watch_fd is not None:
        from gateway.watchdog import end_with_supervisor

        end_with_supervisor(watch_fd)


@main.command(epilog="\b\nExample:\n  starshade serve --policy development --port 9443")
@click.option("--policy", help="Appraisal policy: production (default), development or a file.")
@click.option("--port", "gateway_port", type=int, help="Port to listen on.  [default: 8443]")
@click.option("--keep-dev-key", is_flag=True, hidden=True, help="Keep a key in the state folder.")
@config_options
def serve(
    policy: str | None,
    gateway_port: int | None,
    keep_dev_key: bool,
    config_file: Path | None,
    state_dir: Path | None,
    cache_dir: Path | None,
) -> None:
    """Run the gateway alone, against the workers in its configuration."""
    flags = {"policy": policy, "gateway.port": gateway_port}
    config = read_config(config_file, {**flags, "state_dir": state_dir, "cache_dir": cache_dir})
    from gateway.roles import run_gateway

    run_gateway(config, keep_dev_key=keep_dev_key)


@main.command(epilog="\b\nExample:\n  starshade worker --model smollm2-135m")
@click.option("--model", help="Name of a model, or the path of a GGUF file or safetensors folder.")
@click.option("--upstream", help="A vLLM or SGLang server of this machine that computes instead.")
@config_options
def worker(
    model: str | None,
    upstream: str | None,
    config_file: Path | None,
    state_dir: Path | None,
    cache_dir: Path | None,
) -> None:
    """Run one worker: attester and engine, the side inside the TEE.

    With --upstream the engine is a server beside it, and worker.upstream_weights_sha256 says whose
    weights are attested.
    """
    flags = {
        "worker.model": model,
        "worker.upstream": upstream,
        "state_dir": state_dir,
        "cache_dir": cache_dir,
    }
    config = read_config(config_file, flags)
    from gateway.roles import run_worker

    run_worker(config)


@main.command(epilog="\b\nExample:\n  starshade observatory --port 9444")
@click.option("--host", help="Loopback address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=int, help="Port to listen on.  [default: 8444]")
@click.option("--database-url", help="Telemetry database.  [default: in the state folder]")
@config_options
def observatory(
    host: str | None,
    port: int | None,
    database_url: str | None,
    config_file: Path | None,
    state_dir: Path | None,
    cache_dir: Path | None,
) -> None:
    """Run the dashboard, its API and the span ingest."""
    flags = {
        "observatory.host": host,
        "observatory.port": port,
        "observatory.database_url": database_url,
        "state_dir": state_dir,
        "cache_dir": cache_dir,
    }
    config = read_config(config_file, flags)
    from gateway.roles import run_observatory

    run_observatory(config)


if __name__ == "__main__":
    main(prog_name="starshade")

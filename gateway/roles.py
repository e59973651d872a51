"""How does a serving process begin, and in which words does it fail to?"""

import time
from collections.abc import Callable

from gateway.cli_support import ExitCode, Failure
from gateway.config import StarshadeConfig
from gateway.dev_key import ensure_dev_key
from gateway.files import make_dir
from gateway.logs import configure_logging
from gateway.models import ModelError, model_file
from gateway.servers import serve_gateway, serve_worker
from gateway.sockets import SocketTaken


def run_gateway(config: StarshadeConfig, *, keep_dev_key: bool) -> None:
    """`starshade serve`. Raises: Failure."""
    configure_logging()

    def serve() -> None:
        make_dir(config.state_dir)
        if keep_dev_key:
            ensure_dev_key(config, now_ns=time.time_ns())
        serve_gateway(config)

    _explained(serve, next_step="choose another port with --port or STARSHADE_GATEWAY__PORT")


def run_worker(config: StarshadeConfig) -> None:
    """`starshade worker`. Raises: Failure."""
    configure_logging()
    try:
        model_file(config.worker.model, config.paths)
    except ModelError as err:
        raise Failure(str(err), exit_code=ExitCode.USAGE, code=err.code) from err
    _explained(
        lambda: serve_worker(config),
        next_step="stop the other worker, or choose another socket (STARSHADE_WORKER__SOCKET)",
    )


def _explained(serve: Callable[[], None], *, next_step: str) -> None:
    try:
        serve()
    except SocketTaken as err:
        raise Failure(
            str(err), exit_code=ExitCode.CHECK_FAILED, code=err.code, next_step=next_step
        ) from err
    except OSError as err:
        raise Failure(
            f"{err.strerror}: {err.filename or 'the address to listen on'}",
            exit_code=ExitCode.CHECK_FAILED,
            code="start_failed",
            next_step="docs/operations.md explains the folders and ports",
        ) from err

"""How does a serving process begin, and in which words does it fail to?"""

import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType

from attestation.errors import PolicyError
from gateway.cli_support import ExitCode, Failure, database_failure, import_by_name
from gateway.config import StarshadeConfig
from gateway.dev_key import ensure_dev_key
from gateway.faults import os_error_text
from gateway.files import PRIVATE_UMASK, make_dir
from gateway.models import ModelError, model_file
from gateway.preflight import authorities_problem, policy_failure
from gateway.servers import serve_gateway, serve_worker
from gateway.sockets import SocketTaken
from gateway.whereabouts import noted
from telemetry.logs import configure_logging

_OBSERVATORY = "web.cli:run_observatory"

WANTED_FILES = 65_536  # open at once: connections of clients and to workers


def run_gateway(config: StarshadeConfig, *, keep_dev_key: bool) -> None:
    """`starshade serve`. Raises: Failure."""
    _begin()
    if (problem := authorities_problem(config)) is not None:
        raise problem

    @_database_explained
    def serve() -> None:
        make_dir(config.state_dir)
        if keep_dev_key:
            ensure_dev_key(config, now_ns=time.time_ns())
        serve_gateway(config)

    _explained(serve, next_step="choose another port with --port or STARSHADE_GATEWAY__PORT")


def run_worker(config: StarshadeConfig) -> None:
    """`starshade worker`. Raises: Failure."""
    _begin()
    # torch's OpenMP threads otherwise spin at barriers on cores that other processes need.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # noqa: TID251 - before torch is imported
    if config.worker.upstream is None:
        try:
            model_file(config.worker.model, config.paths)
        except ModelError as err:
            raise Failure(str(err), exit_code=ExitCode.USAGE, code=err.code) from err
    elif config.worker.upstream_weights_sha256 is None:
        raise Failure(
            "a worker attests its weights, and nobody says which the upstream server has",
            exit_code=ExitCode.USAGE,
            code="upstream_weights_missing",
            next_step="set worker.upstream_weights_sha256",
        )
    _explained(
        lambda: serve_worker(config),
        next_step="stop the other worker, or choose another socket (STARSHADE_WORKER__SOCKET)",
    )


def run_observatory(config: StarshadeConfig) -> None:
    """`starshade observatory`. Raises: Failure."""
    _begin()
    settings = config.observatory

    @_database_explained
    def serve() -> None:
        run = import_by_name(_OBSERVATORY)
        with noted(config.paths.observatory_address, host=settings.host, port=settings.port):
            run(database_url=settings.database_url, host=settings.host, port=settings.port)

    _explained(
        serve,
        next_step="choose another port with --port or STARSHADE_OBSERVATORY__PORT",
    )


def _begin() -> None:
    """Private files, no core dump (it would hold prompts and keys), room for every connection,
    log lines on standard error, and status 0 for a stop that was asked for.
    """
    os.umask(PRIVATE_UMASK)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    num_files, max_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= num_files < WANTED_FILES:  # negative: no limit
        wanted = min(WANTED_FILES, max_files) if max_files >= 0 else WANTED_FILES
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max_files))
    configure_logging()
    # The server stops gracefully by handlers of its own, then raises the signal again for these.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _exit)


def _exit(number: int, frame: FrameType | None) -> None:
    sys.exit(ExitCode.SUCCESS)


def _database_explained(serve: Callable[[], None]) -> Callable[[], None]:
    """For a process with a database; a worker has none and need not import what speaks to one."""
    from sqlalchemy.exc import SQLAlchemyError

    def explained() -> None:
        try:
            serve()
        except SQLAlchemyError as err:
            raise database_failure(err) from err

    return explained


def _explained(serve: Callable[[], None], *, next_step: str) -> None:
    try:
        serve()
    except PolicyError as err:
        raise policy_failure(err) from err
    except SocketTaken as err:
        raise Failure(
            str(err), exit_code=ExitCode.CHECK_FAILED, code=err.code, next_step=next_step
        ) from err
    except OSError as err:
        raise Failure(
            f"{os_error_text(err)}: {err.filename or 'the address to listen on'}",
            exit_code=ExitCode.CHECK_FAILED,
            code="start_failed",
            next_step="docs/operations.md explains the folders and ports",
        ) from err

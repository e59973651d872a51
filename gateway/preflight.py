"""What would keep `starshade up` from working, found before anything is started?

Each check returns its complaint with the next step, so that all of them are shown together.
"""

import fcntl
import os
import shutil
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from gateway.cli_support import ExitCode, Failure
from gateway.config import StarshadeConfig
from gateway.faults import os_error_text
from gateway.files import PRIVATE_FILE, make_dir, make_private_dir
from gateway.models import ModelError, ModelMissing, ModelSource, known_model, model_file
from gateway.sockets import MAX_SOCKET_PATH_BYTES, SocketTaken, listen_tcp

MIN_FREE_STATE_BYTES = 64 * 1024 * 1024
# A pull holds the wheel and the extracted file at the same time.
PULL_SPACE_FACTOR = 2.2
SHIPPED_POLICIES = ("production", "development")
_PORTS_TO_TRY = 50
_MAX_PORT = 65_535


def find_problems(config: StarshadeConfig) -> list[Failure]:
    """Everything that would fail later, in the order in which it would."""
    checks = (
        state_problem(config),
        socket_problem(config),
        port_problem("gateway", config.gateway.host, config.gateway.port, "--port"),
        port_problem(
            "dashboard", config.observatory.host, config.observatory.port, "--dashboard-port"
        ),
        same_port_problem(config),
        policy_problem(config),
        authorities_problem(config),
        model_problem(config),
    )
    return [problem for problem in checks if problem is not None]


def model_to_pull(config: StarshadeConfig) -> ModelSource | None:
    """The model that must be fetched first; None when its file is here."""
    try:
        model_file(config.worker.model, config.paths)
    except ModelMissing:
        return known_model(config.worker.model)
    return None


@contextmanager
def only_one_up(lock: Path) -> Iterator[None]:
    """Holds the state folder for one `up`.

    Raises: Failure when another one has it, or when the folder cannot be written.
    """
    try:
        make_private_dir(lock.parent)
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    except OSError as err:
        raise unwritable_state(lock.parent, os_error_text(err)) from err
    try:
        _take(lock, fd)
        yield
    finally:
        os.close(fd)


def _take(lock: Path, fd: int) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(fd, 0)
        os.write(fd, str(os.getpid()).encode())
    except BlockingIOError as err:
        pid = os.read(fd, 16).decode("ascii", "replace").strip()
        raise Failure(
            f"`starshade up` already runs with this state folder (process {pid or 'unknown'})",
            exit_code=ExitCode.CHECK_FAILED,
            code="already_running",
            next_step="use that one, stop it, or choose another folder with --state-dir",
        ) from err
    except OSError as err:  # a full disk, or a file system without locks
        raise unwritable_state(lock.parent, os_error_text(err)) from err


def prepare_state(config: StarshadeConfig) -> Failure | None:
    """Makes the state folder; says why that is impossible."""
    try:
        make_dir(config.state_dir)
        for folder in (config.paths.run_dir, config.paths.logs_dir):
            make_private_dir(folder)
    except OSError as err:
        return unwritable_state(config.state_dir, os_error_text(err))
    return None


def state_problem(config: StarshadeConfig) -> Failure | None:
    if not os.access(config.state_dir, os.W_OK | os.X_OK):
        return unwritable_state(config.state_dir, "not writable by this user")
    return space_problem(config.state_dir, MIN_FREE_STATE_BYTES, "--state-dir")


def socket_problem(config: StarshadeConfig) -> Failure | None:
    num_bytes = len(os.fsencode(config.worker.socket))
    if num_bytes <= MAX_SOCKET_PATH_BYTES:
        return None
    return Failure(
        f"the worker's socket path has {num_bytes} bytes, the system allows "
        f"{MAX_SOCKET_PATH_BYTES}: {config.worker.socket}",
        exit_code=ExitCode.USAGE,
        code="socket_path_too_long",
        next_step="choose a shorter --state-dir, or set STARSHADE_WORKER__SOCKET",
    )


def port_problem(what: str, host: str, port: int, option: str) -> Failure | None:
    try:
        listen_tcp(host, port).close()
    except SocketTaken as err:
        return Failure(
            f"the {what} cannot start: {err}",
            exit_code=ExitCode.CHECK_FAILED,
            code=err.code,
            next_step=f"stop that process, or run `starshade up {option} {_free(host, port)}`",
        )
    except OSError as err:
        return Failure(
            f"the {what} cannot listen on {host} port {port}: {os_error_text(err)}",
            exit_code=ExitCode.CHECK_FAILED,
            code="address_unusable",
            next_step=f"choose another port with {option}, or another host in the configuration",
        )
    return None


def same_port_problem(config: StarshadeConfig) -> Failure | None:
    """Each port is free alone, but the second one to start would find it taken."""
    port = config.gateway.port
    if port != config.observatory.port:
        return None
    return Failure(
        f"gateway and dashboard are both to listen on port {port}",
        exit_code=ExitCode.CHECK_FAILED,
        code="address_in_use",
        next_step="give one of them another port with --port or --dashboard-port",
    )


def _free(host: str, taken: int) -> int | str:
    for port in range(taken + 2, min(taken + 2 + _PORTS_TO_TRY, _MAX_PORT)):
        try:
            with closing(listen_tcp(host, port)):
                return port
        except (SocketTaken, OSError):
            continue
    return "PORT"


def policy_problem(config: StarshadeConfig) -> Failure | None:
    is_shipped, path = config.policy in SHIPPED_POLICIES, Path(config.policy)
    if not is_shipped and not path.is_file():
        return Failure(
            f"there is no appraisal policy {config.policy!r}",
            exit_code=ExitCode.USAGE,
            code="policy_not_found",
            next_step=f"use {' or '.join(SHIPPED_POLICIES)}, or the path of a policy file",
        )
    if is_shipped and config.gateway.deny_file is None:
        return None
    from attestation.errors import PolicyError
    from attestation.policy import load_policy
    from gateway.trust import load_denied

    try:
        load_policy(config.policy if is_shipped else path)
        load_denied(config.gateway.deny_file)
    except PolicyError as err:
        return policy_failure(err)
    return None


def policy_failure(err: Exception) -> Failure:
    """A policy, or the list of what is denied, cannot be used."""
    return Failure(
        str(err),
        exit_code=ExitCode.USAGE,
        code="policy_invalid",
        next_step="use production, development or the path of a sound policy file",
    )


def authorities_problem(config: StarshadeConfig) -> Failure | None:
    """Found at the start: the first fetch may be hours away, and would fail for every worker."""
    collateral, client_ca = config.gateway.collateral, config.gateway.client_ca_file
    if client_ca is not None and not _has_authorities(client_ca):
        return _no_authorities(
            "gateway.client_ca_file",
            client_ca,
            "name a PEM file of the CA that vouches for clients",
        )
    if collateral.ca_file is None or collateral.offline or _has_authorities(collateral.ca_file):
        return None
    return _no_authorities(
        "gateway.collateral.ca_file",
        collateral.ca_file,
        "name a PEM file of the CA that the vendors' mirrors or the proxy present",
    )


def _has_authorities(path: Path) -> bool:
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cafile=path)
    except OSError:  # ssl.SSLError is one too
        return False
    return bool(context.cert_store_stats()["x509_ca"])


def _no_authorities(key: str, path: Path, next_step: str) -> Failure:
    return Failure(
        f"{key}: no CA certificates in {path}",
        exit_code=ExitCode.USAGE,
        code="config_invalid",
        next_step=next_step,
    )


def model_problem(config: StarshadeConfig) -> Failure | None:
    try:
        source = model_to_pull(config)
    except ModelError as err:
        return Failure(
            str(err),
            exit_code=ExitCode.USAGE,
            code=err.code,
            next_step="`starshade models list` shows the names; --model also takes the path of a "
            "GGUF file or of a safetensors folder",
        )
    if source is None:
        return None
    needed = int(source.size_bytes * PULL_SPACE_FACTOR)
    return space_problem(config.cache_dir, needed, "--cache-dir")


def space_problem(folder: Path, needed_bytes: int, option: str) -> Failure | None:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    free_bytes = shutil.disk_usage(existing).free
    if free_bytes >= needed_bytes:
        return None
    return Failure(
        f"the disk of {folder} is nearly full: {free_bytes / 1e6:.0f} MB free, "
        f"{needed_bytes / 1e6:.0f} MB needed",
        exit_code=ExitCode.CHECK_FAILED,
        code="disk_full",
        next_step=f"make room, or choose a folder on another disk with {option}",
    )


def unwritable_state(folder: Path, reason: str) -> Failure:
    return Failure(
        f"the state folder {folder} cannot be used: {reason}",
        exit_code=ExitCode.CHECK_FAILED,
        code="state_not_writable",
        next_step="mend its permissions, make room, or choose another folder with --state-dir",
    )

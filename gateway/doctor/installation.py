"""Are the files of this installation there, sound, private, and with room to grow?"""

import os
import ssl
from datetime import datetime
from pathlib import Path
from typing import Final

from cryptography import x509

from attestation.errors import PolicyError
from gateway.config import StarshadeConfig
from gateway.doctor.finding import Finding, of_failure, ok, warning, wrong
from gateway.faults import os_error_text
from gateway.models import (
    DigestMismatch,
    ModelError,
    known_model,
    model_file,
    names_a_path,
    require_digest,
)
from gateway.preflight import (
    authorities_problem,
    model_problem,
    socket_problem,
    space_problem,
    state_problem,
    unwritable_state,
)
from gateway.process import configured_policy

MEMORY_FACTOR: Final = 1.3  # a packed model, its tables and the interpreter, beside the KV cache
_MEMINFO_MAX_BYTES: Final = 64 * 1024
_CGROUP_LIMIT: Final = "sys/fs/cgroup/memory.max"


def state_folder(config: StarshadeConfig) -> Finding:
    """Absent is well: whatever starts first makes it."""
    name, folder = "state folder", config.state_dir
    if folder.exists():
        return of_failure(name, state_problem(config), well=f"{folder}, writable")
    above = next(path for path in folder.parents if path.exists())
    if not os.access(above, os.W_OK | os.X_OK):
        failure = unwritable_state(folder, f"{above} is not writable by this user")
        return of_failure(name, failure, well="")
    return of_failure(
        name, space_problem(above, 0, "--state-dir"), well=f"{folder}, made at the first start"
    )


def private_files(config: StarshadeConfig) -> Finding:
    """What holds keys or prompts' hashes is for its owner alone."""
    paths = config.paths
    secret = (paths.tls_dir, paths.run_dir, paths.dev_api_key, paths.ca_key, paths.gateway_db)
    here = [path for path in secret if path.exists()]
    open_to_others = [path for path in here if path.stat().st_mode & 0o077]
    if not open_to_others:
        return ok("private files", "for their owner alone" if here else "none yet")
    listed = " ".join(str(path) for path in open_to_others)
    return wrong(
        "private files",
        f"others on this machine can reach {listed}",
        code="not_private",
        next_step=f"chmod go= {listed}",
    )


def worker_socket(config: StarshadeConfig) -> Finding:
    return of_failure("worker's socket", socket_problem(config), well=str(config.worker.socket))


def policy(config: StarshadeConfig) -> Finding:
    """It can be read; a shipped one always can."""
    try:
        loaded = configured_policy(config)
    except PolicyError as err:
        return wrong(
            "appraisal policy",
            str(err),
            code="policy_invalid",
            next_step="use production, development or the path of a sound policy file",
        )
    return ok("appraisal policy", f"{loaded.name}, sha256 {loaded.sha256[:16]}")


def vendors_authorities(config: StarshadeConfig) -> Finding:
    where = config.gateway.collateral.ca_file
    well = "the system's" if where is None else f"the system's and those of {where}"
    return of_failure("CAs for collateral", authorities_problem(config), well=well)


def certificate(config: StarshadeConfig, now: datetime) -> Finding:
    """The gateway renews its own; a lost or damaged one is made again when it starts."""
    name, paths = "server certificate", config.paths
    try:
        server = x509.load_pem_x509_certificate(paths.server_cert.read_bytes())
        authority = x509.load_pem_x509_certificate(paths.ca_cert.read_bytes())
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(paths.server_cert, paths.server_key)
        server.verify_directly_issued_by(authority)
    except FileNotFoundError:
        return ok(name, "made when the gateway starts")
    except Exception as err:  # cryptography and ssl have a family of errors each
        return wrong(
            name,
            f"{paths.server_cert}, its key and {paths.ca_cert} do not fit ({type(err).__name__})",
            code="certificate_unusable",
            next_step="stop the gateway and start it again: it makes what does not fit anew; then "
            "give clients the new ca.pem",
        )
    if not server.not_valid_before_utc <= now < server.not_valid_after_utc:
        return wrong(
            name,
            f"valid from {server.not_valid_before_utc:%Y-%m-%d} to "
            f"{server.not_valid_after_utc:%Y-%m-%d}, not now",
            code="certificate_expired",
            next_step="check the clock, then restart the gateway: it renews the certificate",
        )
    return ok(name, f"valid until {server.not_valid_after_utc:%Y-%m-%d}")


def model(config: StarshadeConfig) -> Finding:
    """Its bytes are the catalogue's, where it is named by the catalogue."""
    name, wanted = "model", config.worker.model
    if failure := model_problem(config):
        return of_failure(name, failure, well="")
    try:
        path = model_file(wanted, config.paths)
        if not names_a_path(wanted):
            require_digest(path, known_model(wanted))
    except DigestMismatch:
        return wrong(
            name,
            f"{wanted}: its file in {config.paths.models_dir} is not the catalogue's",
            code=DigestMismatch.code,
            next_step="delete it and run `starshade models pull`",
        )
    except ModelError as err:  # of the catalogue, but not here
        return warning(
            name,
            f"{wanted} is not here: the first `starshade up` fetches it",
            code=err.code,
            next_step="run `starshade models pull`",
        )
    except OSError as err:
        return wrong(
            name,
            f"{wanted} cannot be read: {os_error_text(err)}",
            code="model_file_unusable",
            next_step="mend its permissions, or choose another --model",
        )
    return ok(name, f"{wanted}, {_size_bytes(path) / 1e6:.0f} MB")


def memory(config: StarshadeConfig, *, root: Path = Path("/")) -> Finding:
    """``root`` holds proc and sys. A rough estimate, so it warns at most."""
    name = "memory"
    try:
        model_bytes = _size_bytes(model_file(config.worker.model, config.paths))
    except (ModelError, OSError):
        return ok(name, "not estimated without the model")
    needed = int(model_bytes * MEMORY_FACTOR) + config.engine.kv_cache_bytes
    free = _free_memory_bytes(root)
    if free is None or free >= needed:
        room = "unknown" if free is None else f"{free / 1e9:.1f} GB"
        return ok(name, f"{room} free, about {needed / 1e9:.1f} GB needed")
    return warning(
        name,
        f"{free / 1e9:.1f} GB free, about {needed / 1e9:.1f} GB needed",
        code="memory_short",
        next_step="lower engine.kv_cache_bytes, choose a smaller model, or free memory",
    )


def _size_bytes(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(item.stat().st_size for item in path.glob("*.safetensors"))


def _free_memory_bytes(root: Path) -> int | None:
    """What the kernel would give, or the container's own limit where that is less."""
    found = [_meminfo_bytes(root / "proc/meminfo"), _number(root / _CGROUP_LIMIT)]
    return min((value for value in found if value is not None), default=None)


def _meminfo_bytes(path: Path) -> int | None:
    try:
        with path.open("rb") as file:
            lines = file.read(_MEMINFO_MAX_BYTES).decode("ascii", "replace").splitlines()
    except OSError:
        return None
    line = next((line for line in lines if line.startswith("MemAvailable:")), "")
    fields = line.split()
    return int(fields[1]) * 1024 if len(fields) == 3 and fields[1].isdigit() else None


def _number(path: Path) -> int | None:
    try:
        text = path.read_text("ascii").strip()
    except (OSError, ValueError):
        return None
    return int(text) if text.isdigit() else None

"""Which gateway is meant, by which rules is it judged, and whose key do requests get?"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.cli_support import ExitCode, Failure, environment
from gateway.config import StarshadeConfig

if TYPE_CHECKING:
    from attestation.keyset import Mode
    from attestation.transport import ClientCertificate

KEY_VARIABLE: Final = "STARSHADE_API_KEY"
MAX_KEY_BYTES: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Whom to verify by which rules, and the key for requests that bring none."""

    url: str
    policy: str
    ca_file: Path | None
    mode: "Mode | None"
    weights: tuple[str, ...]
    proxy: str | None
    client_certificate: "ClientCertificate | None"
    collateral_folder: Path
    key: str | None = field(repr=False)


def require_started(config: StarshadeConfig) -> None:
    """Raises: Failure: nothing has ever run in this state folder."""
    if not config.paths.ca_cert.exists():
        raise Failure(
            f"no gateway was started here yet: there is no {config.paths.ca_cert}",
            exit_code=ExitCode.UNAVAILABLE,
            code="evidence_unavailable",
            next_step="run `starshade up` first and keep it running, or name --state-dir or the "
            "URL of a gateway elsewhere",
        )


def find_key(key_file: Path | None, config: StarshadeConfig | None) -> str | None:
    """``config`` is this machine's own installation, where its gateway is meant.

    Raises: Failure.
    """
    if key_file is None and (given := environment().get(KEY_VARIABLE, "").strip()):
        return given
    kept = None if config is None else config.paths.dev_api_key
    path = key_file or (kept if kept is not None and kept.is_file() else None)
    if path is None:
        return None
    try:
        return _key_in(path)
    except (OSError, ValueError) as err:
        raise Failure(
            f"no API key can be read from {path}",
            exit_code=ExitCode.USAGE,
            code="invalid_api_key",
            next_step="name a file that holds the key alone",
        ) from err


def _key_in(path: Path) -> str:
    """Raises: OSError; ValueError for anything but one key."""
    with path.open("rb") as file:
        data = file.read(MAX_KEY_BYTES + 1)
    if len(data) > MAX_KEY_BYTES:
        raise ValueError("too long for a key")
    (key,) = data.decode("ascii").split()
    return key

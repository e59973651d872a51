"""What do the commands share?  Options, files, exit codes."""

from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import click

from attestation.draft import MISSING_CODES
from attestation.errors import PolicyError
from attestation.kinds import KINDS
from attestation.model import AttestationResult
from attestation.policy import AppraisalPolicy, load_policy
from attestation.strict_json import JsonObject, parse_object

FILE = click.Path(dir_okay=False, path_type=Path)
MAX_KEYSET_BYTES = 64 * 1024
_KEYSET_DEPTH = 8
EXIT_ACCEPT = 0
EXIT_FAILED = 1
EXIT_REJECT = 10
EXIT_UNSUPPORTED = 20
EXIT_MALFORMED = 30
EXIT_UNAVAILABLE = 40
EXIT_INTERNAL = 70
_UNAVAILABLE_CODES = MISSING_CODES | {"evidence_unavailable"}
_MALFORMED_CODES = frozenset({"format", "trailing_bytes", "nonce_length"})

kind_option = click.option(
    "--kind", type=click.Choice(KINDS), help="What EVIDENCE is.  [default: by its structure]"
)


class UtcTime(click.ParamType[datetime]):
    """ISO 8601 with a zone."""

    name = "time"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{value!r} is not an ISO 8601 time", param, ctx)
        if moment.tzinfo is None:
            self.fail(f"{value!r} names no zone: add Z or an offset", param, ctx)
        try:
            return moment.astimezone(UTC)
        except OverflowError:
            self.fail(f"{value!r} lies outside the years 1 to 9999 of UTC", param, ctx)


class Policy(click.ParamType[AppraisalPolicy]):
    """A shipped policy's name or a TOML file."""

    name = "policy"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> AppraisalPolicy:
        if isinstance(value, AppraisalPolicy):
            return value
        try:
            return load_policy(str(value))
        except PolicyError as err:
            self.fail(str(err), param, ctx)


policy_option = click.option(
    "--policy",
    type=Policy(),
    default="production",
    show_default=True,
    help="production, development, or a TOML file.",
)


def code_exit(code: str) -> int:
    """The process exit code of a failing class."""
    if code in _MALFORMED_CODES:
        return EXIT_MALFORMED
    if code.startswith("unsupported_"):
        return EXIT_UNSUPPORTED
    return EXIT_UNAVAILABLE if code in _UNAVAILABLE_CODES else EXIT_REJECT


def exit_code(result: AttestationResult) -> int:
    """The process exit code that tells scripts what happened."""
    return EXIT_ACCEPT if result.is_accepted else code_exit(result.code or "")


def read_bounded(path: Path, max_bytes: int, *, option: str) -> bytes:
    """The file's bytes, at most one more than ``max_bytes``, so that a parser sees the excess."""
    try:
        with path.open("rb") as file:
            return file.read(max_bytes + 1)
    except OSError as err:
        raise click.BadParameter(f"cannot read {path}: {err.strerror}", param_hint=option) from err


def read_opened(file: BinaryIO, max_bytes: int) -> bytes:
    """The same of a file that click opened.  Raises: BadParameter."""
    try:
        return file.read(max_bytes + 1)
    except OSError as err:
        raise click.BadParameter(f"cannot read {file.name}: {err.strerror}") from err


def certificate_pair(certificate: Path | None, key: Path | None) -> tuple[Path, Path] | None:
    """What --client-cert and --client-key name.  Raises: UsageError for one without the other."""
    if certificate is not None and key is not None:
        return certificate, key
    if certificate is None and key is None:
        return None
    raise click.UsageError("--client-cert and --client-key go together")


def read_keyset(path: Path) -> JsonObject:
    """The object in a file given by --keyset.  Raises: MalformedEvidence("format")."""
    data = read_bounded(path, MAX_KEYSET_BYTES, option="--keyset")
    return parse_object(data, what="keyset", max_bytes=MAX_KEYSET_BYTES, max_depth=_KEYSET_DEPTH)

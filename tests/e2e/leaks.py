"""Where could a secret have got to?  Everything an installation wrote, and every log record."""

import logging
from collections.abc import Iterable
from pathlib import Path


def places_of(folder: Path, records: Iterable[logging.LogRecord]) -> dict[str, str]:
    """Place -> what is there: files of `folder`, whichever they are, and the log."""
    files = {str(path): path.read_bytes().decode("latin-1") for path in files_of(folder)}
    return {**files, "logs": "\n".join(whole_record(record) for record in records)}


def whole_record(record: logging.LogRecord) -> str:
    formatted = logging.Formatter().format(record)  # with the traceback, if one was logged
    return f"{formatted} {record.__dict__}"


def files_of(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]

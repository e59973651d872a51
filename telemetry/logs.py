"""What does a log line of a process look like?  UTC time, level, logger, message, `key=value`."""

import logging
import sys
import time

_FORMAT = "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s %(message)s"
_TIME_FORMAT = "%Y-%m-%dT%H:%M:%S"
_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "color_message"}
# What these say at INFO our spans say better; uvicorn warns about whatever a stranger sends, as
# often as it is sent.
_LEVELS = {
    "httpx": logging.WARNING,
    "httpcore": logging.WARNING,
    "alembic": logging.WARNING,
    "uvicorn.error": logging.ERROR,
}


class _ExtraFormatter(logging.Formatter):
    """Appends what a call passed as `extra`, in the order it was given."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        return time.strftime(datefmt or _TIME_FORMAT, time.gmtime(record.created))

    def format(self, record: logging.LogRecord) -> str:
        extra = {key: value for key, value in record.__dict__.items() if key not in _STANDARD}
        line = super().format(record)
        return " ".join([line, *(f"{key}={value}" for key, value in extra.items())])


def configure_logging() -> None:
    """Sends every logger of this process to standard error. For process entries only."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_ExtraFormatter(_FORMAT))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for name, level in _LEVELS.items():
        logging.getLogger(name).setLevel(level)

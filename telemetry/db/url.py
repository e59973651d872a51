"""Which database URL names this file?  Imports nothing heavy: every command asks."""

from pathlib import Path
from typing import Final

# Where a URL's query or fragment would begin, and what escapes are made of.
_ESCAPES: Final = str.maketrans({"%": "%25", "?": "%3F", "#": "%23"})


def sqlite_url(path: Path) -> str:
    """The URL of a SQLite file, for any path; `sqlalchemy.make_url` reads the same path back."""
    return f"sqlite:///{str(path).translate(_ESCAPES)}"

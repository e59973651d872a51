"""What may be said about an unexpected exception?  Its type and where it was, never its message.

A library's message can quote its input, and inputs here are prompts. Process edges log this
instead of a traceback.
"""

import traceback
from pathlib import Path
from typing import Final

_MAX_FRAMES: Final = 16


def os_error_text(error: OSError) -> str:
    """The system's own words; the type where a library made the error up and there are none."""
    return error.strerror or type(error).__name__


def describe_fault(error: BaseException) -> str:
    """`KeyError at relay.py:41 in open <- chat.py:12 in chat`, innermost frame first."""
    frames = traceback.extract_tb(error.__traceback__)[-_MAX_FRAMES:]
    places = (f"{Path(f.filename).name}:{f.lineno} in {f.name}" for f in reversed(frames))
    return f"{type(error).__name__} at {' <- '.join(places) or 'an unknown place'}"

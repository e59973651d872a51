"""When is it worth asking a kernel interface again?  Busy, interrupted, would block."""

import errno
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

ATTEMPTS: Final = 40
WAIT_S: Final = 0.05
_PASSING = frozenset({errno.EBUSY, errno.EINTR, errno.EAGAIN})


class Changed(Exception):
    """Somebody else used the same entry in between, so what was read is not an answer to us."""


def retried(
    work: Callable[[], T], *, sleep: Callable[[float], None], attempts: int = ATTEMPTS
) -> T:
    """What ``work`` returns at its first success; the last attempt's error is the caller's.

    Raises: OSError; Changed.
    """
    for _ in range(attempts - 1):
        try:
            return work()
        except Changed:
            pass
        except OSError as err:
            if err.errno not in _PASSING:
                raise
        sleep(WAIT_S)
    return work()

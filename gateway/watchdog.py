"""How does a child process end when its supervisor is gone, however that one ended?

The supervisor alone holds the writing end of a pipe. When it dies, by whatever signal, the kernel
closes that end; the child reads the end of the file and stops itself.
"""

import os
import signal
import threading
import time

STOP_LIMIT_S = 10.0
_EXIT_ORPHANED = 70


def end_with_supervisor(read_fd: int, *, stop_limit_s: float = STOP_LIMIT_S) -> None:
    """From now on this process stops, gracefully for `stop_limit_s`, when the pipe closes."""
    threading.Thread(
        target=_watch, args=(read_fd, stop_limit_s), name="supervisor-watchdog", daemon=True
    ).start()


def _watch(read_fd: int, stop_limit_s: float) -> None:
    while os.read(read_fd, 1):
        pass  # nobody writes; only the end of the file matters
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(stop_limit_s)
    os._exit(_EXIT_ORPHANED)

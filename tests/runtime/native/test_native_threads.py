"""What becomes of a pool of threads that the system does not grant?"""

import subprocess
import sys

from tests.support.resources import native_module

TOO_MANY = """
import resource
from pathlib import Path
from runtime import _native

num_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
limits = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (num_bytes + (64 << 20), limits[1]))  # a few stacks
try:
    _native.Cpu(200)
except RuntimeError:
    resource.setrlimit(resource.RLIMIT_AS, limits)
    print(_native.Cpu(2).num_threads)
"""


def test_threads_that_cannot_be_had_are_an_error_and_end_no_process() -> None:
    native_module()
    done = subprocess.run(
        [sys.executable, "-c", TOO_MANY], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "2"), done.stderr

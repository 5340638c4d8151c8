"""The largest resident memory of a program."""

import subprocess
import sys
from collections.abc import Mapping, Sequence

_SMALL_PARENT = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, used = os.wait4(process.pid, 0)
print(used.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def peak_megabytes(command: Sequence[str], environment: Mapping[str, str]) -> float:
    """Of `command`, which must end well.

    A small process starts it: Linux counts what a parent holds at its fork as the child's own peak.
    """
    done = subprocess.run(  # noqa: S603 - ours
        [sys.executable, "-c", _SMALL_PARENT, *command], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout) / 1024

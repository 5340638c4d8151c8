"""How many descriptors a process has, and no room for more."""

import contextlib
import itertools
import os
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def room_for(more: int, pid: int) -> Iterator[None]:
    """Within it a process can have so many further descriptors."""
    taken = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}  # noqa: PTH208 - names
    free = (number for number in itertools.count() if number not in taken)
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (next(itertools.islice(free, more, None)), before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def open_here() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count of names

"""How many descriptors a process has, and no room for more."""

import contextlib
import itertools
import os
import resource
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def room_for(more: int, pid: int = os.getpid()) -> Iterator[None]:
    """Within it a process, this one by default, can have so many further descriptors."""
    place = Path(f"/proc/{pid}/fd")
    # Of this process the listing itself had one, which is gone.
    taken = {int(entry.name) for entry in list(place.iterdir()) if entry.is_symlink()}
    free = (number for number in itertools.count() if number not in taken)
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (next(itertools.islice(free, more, None)), before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def open_here() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count of names

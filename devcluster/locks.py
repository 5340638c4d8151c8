"""One command at a time, on this machine."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive(path: Path, waits: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Holds the lock file `path`; `waits` is called once if another holds it. The kernel frees a killed one's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waits()
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield

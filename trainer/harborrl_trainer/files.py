"""Durable small files on shared volumes: whole or absent, never torn, also after the machine lost power."""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LOCK_SECONDS = 30.0
_LOCK_PAUSE = 0.05
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL})


def replace(path: Path, text: str) -> None:
    """Write `text` to `path` so that a reader sees the old or the new content and nothing between."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        discard(temporary)
        error.filename = error.filename or str(path)  # a write that fails does not say where
        raise
    sync_directory(path.parent)


def append(descriptor: int, data: bytes, path: Path) -> None:
    """Write all of `data`, with one write where the volume takes it: a short one is how a volume begins to be full."""
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def discard(temporary: Path) -> None:
    """Remove what a failed write has left, as far as the volume lets us: the write's own error is the one to tell."""
    with suppress(OSError):
        temporary.unlink(missing_ok=True)


def sync_directory(path: Path) -> None:
    """Make a directory's entries durable: a new or renamed name counts only after this."""
    sync(path)


def sync(path: Path) -> None:
    """Make what others have written to a file, or the entries of a directory, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def locked(path: Path, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    """Hold `<path>.lock` against every other process and machine; it falls free when its holder dies.

    Raises TimeoutError when another holds it for `seconds`. A file system without locks is used without one: what is
    written under a lock is also read back by whoever writes it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o666)
    try:
        _lock(descriptor, path, time.monotonic() + seconds)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path, until: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise TimeoutError(errno.ETIMEDOUT, "another process holds the lock", str(path)) from None
            time.sleep(_LOCK_PAUSE)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            return
        else:
            return

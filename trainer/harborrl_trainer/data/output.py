"""A file that is replaced whole or not at all: written beside its place, made durable, renamed into it."""

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from harborrl_trainer import files
from harborrl_trainer.errors import ConfigurationError

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF)
"""File systems that lock no folders; there the last of two writers wins, still whole."""


def checked(path: Path) -> Path:
    """The file itself where `path` is a link to it. Raises ConfigurationError when it is no file."""
    real = path.resolve()
    if real.exists() and not real.is_file():
        raise ConfigurationError(f"{path}: exists and is no regular file; choose another --output")
    return real


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A writer whose content takes the place of `path` when the block ends well; else nothing has changed.

    One writer a folder at a time: ConfigurationError when another is at work there. What a killed one left is removed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _folder_of(path):
        for left in path.parent.glob(f".{path.name}.*.tmp"):
            left.unlink(missing_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            with temporary.open("xb", buffering=1024 * 1024) as file:
                yield file
                file.flush()
                with suppress(FileNotFoundError):
                    os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
                os.fsync(file.fileno())
            temporary.replace(path)
            files.sync_directory(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def _folder_of(path: Path) -> Iterator[None]:
    """Locked, which leaves no lock file beside people's data."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        _lock(folder, path)
        yield
    finally:
        os.close(folder)


def _lock(folder: int, path: Path) -> None:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigurationError(
            f"{path}: another `harborrl data prepare` writes in this folder; try again when it has ended"
        ) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise

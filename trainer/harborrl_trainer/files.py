"""Durable small files on shared volumes: whole or absent, never torn, also after the machine lost power."""

import os
from pathlib import Path


def replace(path: Path, text: str) -> None:
    """Write `text` to `path` so that a reader sees the old or the new content and nothing between."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_directory(path.parent)


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

"""A volume that can really be full: a tmpfs of a few MiB. Needs the right to mount."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_volume(folder: Path, mebibytes: int) -> Iterator[Path]:
    """`folder`, mounted for the block; skips the test where nothing can be mounted."""
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    folder.mkdir(parents=True, exist_ok=True)
    command = ["/bin/mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own command
    if mounted.returncode != 0:
        pytest.skip(f"a tmpfs cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["/bin/umount", "-l", str(folder)], check=True)  # noqa: S603 - our own command


def fill(folder: Path, name: str = "filler") -> Path:
    """A file that takes all that is left of the volume."""
    path = folder / name
    with path.open("wb", buffering=0) as file:
        try:
            while file.write(b"\0" * 65536) == 65536:
                pass
        except OSError:
            return path
    return path

"""Files that `torch.load(weights_only=True)` reads, written without torch: an archive with a pickle of plain values."""

import pickle
import zipfile
from pathlib import Path
from typing import Any


def save(value: Any, path: Path) -> None:
    """In place, as Miles does: a reader may meet half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(value, protocol=2))
        archive.writestr("archive/version", "3\n")
        archive.writestr("archive/byteorder", "little")


def load(path: Path) -> Any:
    with zipfile.ZipFile(path) as archive:
        return pickle.loads(archive.read("archive/data.pkl"))  # noqa: S301 - its own files, in tests and demonstrations

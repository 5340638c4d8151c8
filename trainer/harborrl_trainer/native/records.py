"""What the driver writes to the traces volume. Every file is written beside its place and renamed into it."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from harborrl_trainer import files
from harborrl_trainer.writing import writing


def dump(path: Path, value: Mapping[str, Any]) -> None:
    """A torch pickle of plain values."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                torch.save(dict(value), file)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            files.sync_directory(path.parent)
    except Exception:
        files.discard(temporary)
        raise


def dump_lines(path: Path, values: Iterable[Mapping[str, Any]]) -> None:
    text = "".join(_line(value) for value in values)
    with writing(path):
        files.replace(path, text)


def append_line(path: Path, value: Mapping[str, Any]) -> None:
    """One JSON line with one write, as a reader may be following the file."""
    line = _line(value).encode()
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            files.append(descriptor, line, path)
        finally:
            os.close(descriptor)


def _line(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False) + "\n"

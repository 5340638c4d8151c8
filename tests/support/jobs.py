"""Builders of job documents and of what lies on a job's volumes, each test saying only what differs."""

import json
from pathlib import Path
from typing import Any

from harborrl_trainer.job import JobDocument, parse_job

CONTRACTS = Path(__file__).resolve().parents[1] / "contract"


def document(**changes: Any) -> dict[str, Any]:
    """The contract's job document with fields replaced; `__` stands for the dot of a path."""
    root: dict[str, Any] = json.loads((CONTRACTS / "job_document.json").read_text())
    for path, value in changes.items():
        *parents, last = path.split("__")
        part = root
        for name in parents:
            part = part[name]
        part[last] = value
    return root


def job(volumes: Path, **changes: Any) -> JobDocument:
    """A job whose five volumes lie below `volumes`."""
    storage = {role: str(volumes / role) for role in ("models", "tasks", "checkpoints", "traces", "trials")}
    placed: dict[str, Any] = {
        "storage": storage,
        "model__path": str(volumes / "models" / "tiny"),
        "data": {"tasks": {"root": storage["tasks"]}},
    }
    return parse_job(json.dumps(document(**(placed | changes))))


def make_volumes(volumes: Path) -> None:
    for role in ("models", "tasks", "checkpoints", "traces", "trials"):
        (volumes / role).mkdir(parents=True)


def make_task(root: Path, name: str, instruction: str = "Write hello into greeting.txt.") -> Path:
    task = root / name
    (task / "tests").mkdir(parents=True)
    (task / "instruction.md").write_text(instruction)
    (task / "task.toml").write_text('version = "1.0"\n')
    (task / "tests" / "test.sh").write_text("#!/bin/sh\n")
    return task


def make_model(path: Path) -> Path:
    """A directory that passes for a model in outline: one tensor of 2 x 3 half-precision numbers."""
    path.mkdir(parents=True)
    (path / "config.json").write_text('{"model_type": "llama"}')
    (path / "tokenizer.json").write_text("{}")
    write_safetensors(path / "model.safetensors")
    return path


def write_safetensors(path: Path) -> None:
    header = json.dumps({"weight": {"dtype": "F16", "shape": [2, 3], "data_offsets": [0, 12]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(12))


def make_checkpoint(path: Path, *, complete: bool = True) -> Path:
    path.mkdir(parents=True)
    (path / "model.safetensors").write_bytes(b"x")
    if complete:
        (path / "complete.json").write_text("{}")
    return path

"""What is built: each image, the files that decide its content, and the fingerprint of those."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = "localhost/harborrl"
TAG = "dev"

DISTRIBUTION = ("pyproject.toml", "README.md", "LICENSE")
BUILD = ("Dockerfile", ".dockerignore", "requirements/build.txt", "images/container")


@dataclass(frozen=True)
class Target:
    """One image. `sources` are files and folders relative to the repository's root that its stages copy."""

    name: str
    sources: tuple[str, ...]

    @property
    def image(self) -> str:
        return f"{REPOSITORY}/{self.name}:{TAG}"


BASE = Target("base", ())
"""Debian and Python; also what the sandboxes of the quickstart run."""

TARGETS = (
    BASE,
    Target("operator", ("requirements/operator.txt", "operator/harborrl_operator", *DISTRIBUTION)),
    Target("agent-server", ("requirements/agent-server.txt", "agent_server/harborrl_agent_server", *DISTRIBUTION)),
    Target(
        "trainer", ("requirements/trainer.txt", "requirements/torch-cpu.txt", "trainer/harborrl_trainer", *DISTRIBUTION)
    ),
    Target(
        "miles-shaped",
        (
            "requirements/trainer.txt",
            "requirements/torch-cpu.txt",
            "images/miles_shaped",
            "trainer/harborrl_trainer/launch/data/flags-31f1ca9.json",
            "trainer/harborrl_trainer/launch/data/flags-9a00364.json",
        ),
    ),
    Target("agent-tools", ("requirements/agent-tools.txt", "images/agent_tools")),
    Target(
        "quickstart",
        (
            "requirements/model.txt",
            "examples/quickstart/convert_model.py",
            "examples/quickstart/copy-data",
            "examples/quickstart/eval.jsonl",
            "examples/quickstart/tasks",
            "examples/quickstart/bad/data",
        ),
    ),
)
BY_NAME = {target.name: target for target in TARGETS}


def fingerprint(root: Path, target: Target, base: str) -> str:
    """SHA-256 (hex) of the base's identity and of path, mode and bytes of each file that the target is made from."""
    digest = hashlib.sha256(f"{base}\0{target.name}\0".encode())
    for path in _files(root, (*BUILD, *target.sources)):
        content = path.read_bytes()
        header = f"{path.relative_to(root)}\0{os.access(path, os.X_OK)}\0{len(content)}\0"
        digest.update(header.encode())
        digest.update(content)
    return digest.hexdigest()


def _files(root: Path, sources: tuple[str, ...]) -> list[Path]:
    found: set[Path] = set()
    for source in sources:
        path = root / source
        if path.is_dir():
            found.update(file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts)
        else:
            found.add(path)
    return sorted(found)

"""Miles' source, where HARBORRL_MILES_SOURCE names a checkout or a git directory: each pinned commit by itself."""

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import IO, Any

VARIABLE = "HARBORRL_MILES_SOURCE"
COMMITS = ("31f1ca961", "9a00364")
ROOT = Path(__file__).resolve().parents[2]


def source() -> Path | None:
    name = os.environ.get(VARIABLE, "")
    return Path(name) if name else None


def extract(repository: Path, commit: str, folder: Path) -> Path:
    """Miles' package at a commit; a folder without git is taken as it is."""
    archive = folder / f"{commit}.tar"
    command = ["git", "-C", str(repository), "archive", "-o", str(archive), commit, "miles"]
    if subprocess.run(command, capture_output=True, check=False).returncode:  # noqa: S603 - git, a list
        return repository
    with tarfile.open(archive) as packed:
        packed.extractall(folder / commit, filter="data")
    return folder / commit


class Run:
    """Everything of support.miles_real on one commit, in a process that has begun when this is made."""

    def __init__(self, repository: Path, commit: str, folder: Path) -> None:
        self.commit = commit
        self._result = folder / f"{commit}.json"
        self._log = folder / f"{commit}.log"
        with self._log.open("w") as log:
            self._process = self._start(extract(repository, commit, folder), log)

    def _start(self, tree: Path, log: IO[str]) -> "subprocess.Popen[str]":
        paths = [ROOT / name for name in ("trainer", "tests", ".")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
        command = [sys.executable, "-W", "ignore", "-m", "support.miles_real", str(tree), str(self._result)]
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log, text=True)  # noqa: S603 - ourselves

    def result(self) -> dict[str, Any]:
        if self._process.wait(timeout=600):
            raise AssertionError(f"Miles {self.commit}: {self._log.read_text()[-3000:]}")
        found: dict[str, Any] = json.loads(self._result.read_text())
        return found

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

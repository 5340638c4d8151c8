"""Harbor tasks written to disk for tests: small, real, graded by their own test.sh."""

import stat
from pathlib import Path

GREETING = """got=$(cat /app/greeting.txt 2>/dev/null)
if [ "$got" = hello ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt"""


LISTS_PROCESSES = "ps -e -o args= >/logs/verifier/processes.txt; echo 0.5 >/logs/verifier/reward.txt"
"""A verifier that keeps what still runs while it grades."""


def write_task(
    root: Path,
    name: str = "write-greeting",
    *,
    instruction: str = "Write hello to /app/greeting.txt.",
    verify: str = GREETING,
    solve: str = "echo hello >/app/greeting.txt",
    toml: str = "",
    environment: str = 'workdir = "/app"',
) -> Path:
    """One task directory whose test.sh is `verify` and whose solution is `solve`."""
    task = root / name
    for folder in ("environment", "tests", "solution"):
        (task / folder).mkdir(parents=True)
    (task / "task.toml").write_text(f'version = "1.0"\n[environment]\n{environment}\n{toml}\n')
    (task / "instruction.md").write_text(instruction)
    (task / "environment" / "Dockerfile").write_text("FROM scratch\n")
    script(task / "tests" / "test.sh", verify)
    script(task / "solution" / "solve.sh", solve)
    return task


def script(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)

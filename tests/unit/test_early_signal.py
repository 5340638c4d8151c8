"""A program that is told to end while it still imports: as process 1 of a container it has to ask for the signal."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SLOW = "import threading\nprint('importing', flush=True)\nwhile True:\n    threading.Event().wait(0.2)\n"
"""In the place of a module that the program needs; in short waits: a signal just before one is seen after it."""

PROGRAMS = {
    "agent server": ("agent_server", "uvicorn", ["-m", "harborrl_agent_server"], 0),
    "operator": ("operator", "kopf", ["-m", "harborrl_operator"], 0),
}
"""Folder, module that is slow, command and exit code."""


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_that_is_told_to_end_while_it_imports_ends(program: str, tmp_path: Path) -> None:
    folder, slow, command, expected = PROGRAMS[program]
    (tmp_path / f"{slow}.py").write_text(SLOW)
    assert ended([sys.executable, *command], (tmp_path, ROOT / folder), "importing\n") == expected


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="a PID namespace needs root and unshare"
)
def test_a_supervisor_that_is_told_to_end_while_it_imports_ends(tmp_path: Path) -> None:
    """It looks whether it is process 1, for the driver's own handler comes later and means something else."""
    os.mkfifo(job := tmp_path / "job.json")
    command = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-m", "harborrl_trainer", "supervise"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "trainer"), "HARBORRL_JOB": str(job)}
    with subprocess.Popen(command, env=environment) as process:  # noqa: S603 - our own program
        try:
            with job.open("w"):  # returns once it is being read
                os.kill(child_of(process.pid), signal.SIGTERM)
                assert process.wait(timeout=30) == 128 + signal.SIGTERM
        finally:
            process.kill()


def ended(command: list[str], paths: tuple[Path, ...], line: str) -> int:
    """The exit code after SIGTERM at the moment of `line`, with the signal ignored before, as for process 1."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own
    finally:
        signal.signal(signal.SIGTERM, before)
    with process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == line
            process.terminate()
            return process.wait(timeout=30)
        finally:
            process.kill()


def child_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])

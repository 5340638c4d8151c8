import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from devcluster.keeping import kept
from devcluster.processes import Program, Supervisor, start_time

BEGIN = "echo $$ >>begun; exec sleep 600"
"""Each start leaves the number of its process in the folder."""


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    supervisor = Supervisor(tmp_path / "run", tmp_path / "log")
    supervisor.ensure(Program("kept", kept(("/bin/sh", "-c", f"cd {tmp_path}; {BEGIN}"))))
    yield supervisor
    supervisor.stop("kept")


def until[Found](find: Callable[[], Found]) -> Found:
    deadline = time.monotonic() + 60
    while not (found := find()):
        assert time.monotonic() < deadline
        os.sched_yield()
    return found


def begun(folder: Path, count: int) -> int:
    """Process of the start number `count`, once it has begun."""
    path = folder / "begun"
    return until(lambda: int(path.read_text().split()[count - 1]) if path.exists() and lines(path) >= count else 0)


def lines(path: Path) -> int:
    return path.read_text().count("\n")


def test_a_kept_program_that_ends_is_started_again_and_its_log_says_so(supervisor: Supervisor, tmp_path: Path) -> None:
    os.kill(begun(tmp_path, 1), signal.SIGKILL)
    assert start_time(begun(tmp_path, 2)) is not None
    assert "ended with 137 and is started again" in supervisor.log_tail("kept")


def test_a_stopped_keeper_takes_its_program_along_before_it_ends(supervisor: Supervisor, tmp_path: Path) -> None:
    program = begun(tmp_path, 1)
    supervisor.stop("kept")
    assert start_time(program) is None


def test_a_killed_keeper_takes_its_program_along(supervisor: Supervisor, tmp_path: Path) -> None:
    program, record = begun(tmp_path, 1), supervisor.record("kept")
    assert record is not None
    os.kill(record.pid, signal.SIGKILL)
    until(lambda: start_time(program) is None)

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from devcluster.errors import ComponentError
from devcluster.processes import (
    Program,
    Recorded,
    Supervisor,
    boot_id,
    end_process,
    ends_with_us,
    is_alive,
    parse_start_time,
    read_pid_file,
    start_time,
    write_atomically,
)


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    supervisor = Supervisor(tmp_path / "run", tmp_path / "log")
    yield supervisor
    for pid_file in supervisor.run.glob("*.pid"):
        supervisor.stop(pid_file.stem, grace=0.0)


def named(supervisor: Supervisor, *extra: str) -> Program:
    """A long-running program whose command line is this test's alone. It has no child that would outlive it."""
    return Program("sleeper", ("/bin/cat", str(never_written(supervisor)), *extra))


def never_written(supervisor: Supervisor) -> Path:
    """Who opens it waits for a writer."""
    pipe = supervisor.run.parent / "never-written"
    if not pipe.exists():
        os.mkfifo(pipe)
    return pipe


def pid_of(supervisor: Supervisor) -> int:
    record = supervisor.record("sleeper")
    assert record is not None
    return record.pid


def test_the_start_time_is_found_behind_a_name_with_spaces_and_brackets() -> None:
    fields = " ".join(str(number) for number in range(4, 53))
    assert parse_start_time(f"42 (a) b (c)) S {fields}") == ("S", 22)


def test_a_program_runs_in_a_session_of_its_own(supervisor: Supervisor) -> None:
    supervisor.ensure(named(supervisor))
    assert os.getsid(pid_of(supervisor)) != os.getsid(0)


def test_a_program_outlives_no_lock_of_who_started_it(supervisor: Supervisor, tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with lock.open("w") as ours:
        os.set_inheritable(ours.fileno(), True)  # as `flock FILE COMMAND` hands it to its command
        fcntl.flock(ours, fcntl.LOCK_EX)
        supervisor.ensure(named(supervisor))
    with lock.open() as theirs:
        fcntl.flock(theirs, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_ensuring_twice_starts_once(supervisor: Supervisor) -> None:
    assert supervisor.ensure(named(supervisor))
    first = pid_of(supervisor)
    assert not supervisor.ensure(named(supervisor))
    assert pid_of(supervisor) == first


def test_a_changed_command_line_restarts(supervisor: Supervisor) -> None:
    supervisor.ensure(named(supervisor))
    first = pid_of(supervisor)
    assert supervisor.ensure(named(supervisor, "other"))
    assert pid_of(supervisor) != first
    assert start_time(first) is None


def test_a_changed_input_file_restarts(supervisor: Supervisor, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("one")
    program = replace(named(supervisor), inputs=(config,))
    supervisor.ensure(program)
    config.write_text("two")
    assert supervisor.ensure(program)


def test_a_killed_program_is_started_again(supervisor: Supervisor) -> None:
    supervisor.ensure(named(supervisor))
    record = supervisor.record("sleeper")
    assert record is not None
    os.kill(record.pid, signal.SIGKILL)
    os.waitpid(record.pid, 0)
    assert supervisor.record("sleeper") is None
    assert supervisor.ensure(named(supervisor))


def test_a_process_whose_starter_died_before_the_pid_file_is_replaced_not_doubled(supervisor: Supervisor) -> None:
    supervisor.ensure(named(supervisor))
    orphan = pid_of(supervisor)
    supervisor.pid_file("sleeper").unlink()
    supervisor.ensure(named(supervisor))
    assert start_time(orphan) is None


def test_a_recycled_pid_is_neither_ours_nor_signalled(supervisor: Supervisor) -> None:
    supervisor.ensure(named(supervisor))
    record = supervisor.record("sleeper")
    assert record is not None
    stranger = replace(record, started=record.started + 1)
    assert not is_alive(stranger)
    end_process(stranger.pid, stranger.started, grace=0.0)
    assert start_time(record.pid) == record.started


def test_a_pid_file_from_before_a_reboot_is_not_believed() -> None:
    started = start_time(os.getpid())
    assert started is not None
    assert is_alive(Recorded(os.getpid(), started, boot_id()))
    assert not is_alive(Recorded(os.getpid(), started, "another boot"))


@pytest.mark.parametrize("content", ["", "{", '{"pid": 1}', "[]"])
def test_a_torn_pid_file_means_that_nothing_is_known(tmp_path: Path, content: str) -> None:
    (tmp_path / "x.pid").write_text(content)
    assert read_pid_file(tmp_path / "x.pid") is None


def test_a_program_can_be_bound_to_its_starter_and_ends_when_that_is_killed(tmp_path: Path) -> None:
    if not ends_with_us():
        pytest.skip("needs setpriv of util-linux")
    starter = (
        "import pathlib, sys, devcluster.processes as p; folder = pathlib.Path(sys.argv[1]);"
        "bound = p.Supervisor(folder / 'run', folder / 'log', p.ends_with_us());"
        "bound.ensure(p.Program('sleeper', ('/bin/sleep', '600'))); print('up', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(  # noqa: S603 - our own interpreter, no shell
        [sys.executable, "-c", starter, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        record = read_pid_file(tmp_path / "run" / "sleeper.pid")
        assert record is not None
        assert is_alive(record)
        process.kill()
    deadline = time.monotonic() + 10
    while is_alive(record) and time.monotonic() < deadline:
        os.sched_yield()
    assert not is_alive(record)


def test_stopping_what_never_ran_is_no_error(supervisor: Supervisor) -> None:
    supervisor.stop("never")


def test_a_program_that_ignores_sigterm_is_killed(supervisor: Supervisor) -> None:
    stubborn = Program("stubborn", ("/bin/sh", "-c", "trap '' TERM; read _ <$0", str(never_written(supervisor))))
    supervisor.ensure(stubborn)
    record = supervisor.record("stubborn")
    assert record is not None
    supervisor.stop("stubborn", grace=0.2)
    assert start_time(record.pid) is None


def test_a_missing_program_file_is_an_error_that_names_it(supervisor: Supervisor) -> None:
    with pytest.raises((FileNotFoundError, ComponentError)):
        supervisor.ensure(Program("absent", (str(supervisor.run / "absent"),)))


def test_an_atomic_write_replaces_and_keeps_the_mode(tmp_path: Path) -> None:
    target = tmp_path / "secret"
    write_atomically(target, "one", 0o600)
    write_atomically(target, "two", 0o600)
    assert target.read_text() == "two"
    assert target.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]

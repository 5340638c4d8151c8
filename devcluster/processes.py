"""Background programs that outlive the command, each known by a pid file that cannot mean a stranger.

A pid file holds the pid and the kernel's start time of the process (clock ticks since boot, field 22 of
/proc/PID/stat) beside the boot id, so neither a recycled pid nor a reboot makes us signal somebody else.
"""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from devcluster.errors import ComponentError

PROC = Path("/proc")

LONGEST_LINE = 400
"""Characters of a log line that an error quotes; the kubelet writes some of 10,000."""


@dataclass(frozen=True)
class Program:
    """One background program: what `Supervisor.ensure` starts and `stop` ends."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    inputs: tuple[Path, ...] = ()
    """Files that it reads once at its start: a change restarts it."""

    def fingerprint(self) -> str:
        """Changes with the command line, environment, program file or input files."""
        digest = hashlib.sha256(json.dumps([self.argv, sorted(self.env.items())]).encode())
        for path in self.inputs:
            digest.update(path.read_bytes() if path.exists() else b"absent")
        return digest.hexdigest()


@dataclass(frozen=True)
class Recorded:
    """Contents of a pid file."""

    pid: int
    started: int
    boot: str
    fingerprint: str = ""


def parse_start_time(stat: str) -> tuple[str, int]:
    """State letter and start time from /proc/PID/stat, whose second field may hold spaces and brackets."""
    fields = stat.rpartition(")")[2].split()
    return fields[0], int(fields[19])


def start_time(pid: int, proc: Path = PROC) -> int | None:
    """Start time of a living process, None where there is none or only a zombie."""
    try:
        state, started = parse_start_time((proc / str(pid) / "stat").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if state in "ZX" else started


def boot_id(proc: Path = PROC) -> str:
    return (proc / "sys/kernel/random/boot_id").read_text().strip()


def read_pid_file(path: Path) -> Recorded | None:
    """The record, or None where the file is absent or torn."""
    try:
        return Recorded(**json.loads(path.read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def is_alive(record: Recorded | None, proc: Path = PROC) -> bool:
    return record is not None and record.boot == boot_id(proc) and start_time(record.pid, proc) == record.started


def write_atomically(path: Path, content: str, mode: int = 0o644) -> None:
    """Replaces a file in one step, so that a reader or a kill sees the old or the new one."""
    partial = path.with_name(f".{path.name}.partial")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(content)
    partial.replace(path)


@dataclass(frozen=True)
class Supervisor:
    """Starts, finds and ends programs whose pid files lie in `run` and logs in `logs`."""

    run: Path
    logs: Path
    launcher: tuple[str, ...] = ()
    """Words before each command line, of a program that turns into the one it starts."""

    def pid_file(self, name: str) -> Path:
        return self.run / f"{name}.pid"

    def log_file(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def record(self, name: str) -> Recorded | None:
        """The program's record if it lives."""
        record = read_pid_file(self.pid_file(name))
        return record if is_alive(record) else None

    def ensure(self, program: Program) -> bool:
        """Starts the program unless it runs as wanted; True if it was (re)started."""
        record = self.record(program.name)
        if record is not None and record.fingerprint == program.fingerprint():
            return False
        if record is not None:
            self.stop(program.name)
        self._start(program)
        return True

    def _start(self, program: Program) -> None:
        self.run.mkdir(parents=True, exist_ok=True)
        self.logs.mkdir(parents=True, exist_ok=True)
        self._end_orphan(program)
        pid = spawn(program, self.log_file(program.name), self.launcher)
        started = start_time(pid)
        while start_time(pid) is not None and not self._has_become_its_program(pid):
            # For some microseconds a new process has no command line yet, and _end_orphan could not know it.
            time.sleep(0.001)
        if started is None:
            log = self.log_file(program.name)
            raise ComponentError(program.name, "ended at once", log, self.log_tail(program.name))
        record = Recorded(pid, started, boot_id(), program.fingerprint())
        write_atomically(self.pid_file(program.name), json.dumps(record.__dict__))

    def _has_become_its_program(self, pid: int) -> bool:
        try:
            words = (PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            return False
        return words[0] not in (b"", *(word.encode() for word in self.launcher[:1]))

    def _end_orphan(self, program: Program) -> None:
        """Ends a process with exactly this command line: one whose starter was killed before it wrote the pid file.

        The command line names our own state folder, so it cannot be somebody else's.
        """
        wanted = b"\0".join(word.encode() for word in program.argv) + b"\0"
        for entry in PROC.iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if (entry / "cmdline").read_bytes() != wanted:
                    continue
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
            end_process(int(entry.name), start_time(int(entry.name)))

    def stop(self, name: str, grace: float = 10.0) -> None:
        """Ends the program (SIGTERM, after `grace` seconds SIGKILL) and removes its pid file."""
        record = self.record(name)
        if record is not None:
            end_process(record.pid, record.started, grace)
        self.pid_file(name).unlink(missing_ok=True)

    def log_tail(self, name: str, lines: int = 12) -> str:
        try:
            content = self.log_file(name).read_text(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(line[:LONGEST_LINE] for line in content.splitlines()[-lines:])


def ends_with_us() -> tuple[str, ...]:
    """A launcher (util-linux's setpriv) that has the kernel kill the program when the thread that started it ends.

    Empty where there is no setpriv: then a killed starter leaves the program behind.
    """
    setpriv = shutil.which("setpriv")
    return (setpriv, "--pdeathsig", "KILL", "--") if setpriv else ()


def spawn(program: Program, log: Path, launcher: tuple[str, ...] = ()) -> int:
    """Starts a program in a session of its own, so that the end of our terminal or process is not its end.

    It gets none of our caller's open files: with the descriptor of a lock it would hold that for as long as it runs.
    """
    argv = (*launcher, *program.argv)
    return os.posix_spawn(
        argv[0],
        argv,
        {**os.environ, **program.env},
        setsid=True,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
            *((os.POSIX_SPAWN_CLOSE, descriptor) for descriptor in inheritable()),
        ],
    )


def inheritable() -> list[int]:
    """Descriptors beyond standard error that a program would get from us; Python's own are not among them."""
    found = []
    for entry in (PROC / "self" / "fd").iterdir():
        descriptor = int(entry.name)
        with contextlib.suppress(OSError):  # that of the listing itself
            if descriptor > 2 and os.get_inheritable(descriptor):
                found.append(descriptor)
    return found


def reap(pid: int) -> None:
    """Collects the exit status of a child of this process, so that it does not stay a zombie."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def end_process(pid: int, started: int | None, grace: float = 10.0) -> None:
    """SIGTERM, then SIGKILL after `grace` seconds; never signals a pid whose start time differs from `started`."""
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, 5.0)):
        if started is None or start_time(pid) != started:
            break
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + patience
        while start_time(pid) == started and time.monotonic() < deadline:
            time.sleep(0.05)
    reap(pid)

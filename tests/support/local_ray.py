"""A real one-node Ray on free ports of this machine, ended with all its processes."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event

_PORTS = (
    "port",
    "dashboard-port",
    "dashboard-agent-listen-port",
    "dashboard-agent-grpc-port",
    "runtime-env-agent-port",
    "metrics-export-port",
    "ray-client-server-port",
    "node-manager-port",
    "object-manager-port",
)


def eventually(claim: Callable[[], bool], what: str, logs: Path, seconds: float = 600) -> None:
    """Wait for another process to make `claim` true; if it does not, show what the processes logged into `logs`.

    The time is for a machine that is busy with other things: on an idle one a claim takes a few seconds.
    """
    pause = Event()
    for _ in range(int(seconds * 10)):
        if claim():
            return
        pause.wait(0.1)
    told = "\n".join(f"{log.name}:\n{log.read_text()[-2000:]}" for log in sorted(logs.glob("*.log")))
    raise AssertionError(f"not within {seconds} s: {what}\n{told}")


@contextmanager
def local_ray(folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """Yields the dashboard's URL. Drivers inherit `environment`, as they inherit the Ray container's in a pod."""
    with ExitStack() as stack:
        yield _first_that_starts(stack, folder, environment)


STARTS = 5
"""Ray gives its own processes 30 s, a number in its source, which a busy machine may exceed."""


def _first_that_starts(stack: ExitStack, folder: Path, environment: Mapping[str, str]) -> str:
    for _ in range(STARTS):
        with ExitStack() as attempt:
            process, dashboard = attempt.enter_context(_ray(folder, environment))
            if _has_started(process, folder / "ray.log"):
                stack.push(attempt.pop_all())
                return dashboard
    raise AssertionError(f"Ray ended {STARTS} times while starting:\n{(folder / 'ray.log').read_text()[-2000:]}")


def _has_started(process: subprocess.Popen[bytes], log: Path) -> bool:
    pause = Event()
    while process.poll() is None:
        if "Ray runtime started" in log.read_text():
            return True
        pause.wait(0.1)
    return False


@contextmanager
def _ray(folder: Path, environment: Mapping[str, str]) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    ports = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))
    arguments = [f"--{name}={port}" for name, port in ports.items()]
    mark = f"harborrl-test-{os.getpid()}"
    # Of its own and with a short name: Ray's sockets lie below it, and other Rays of this machine are left alone.
    with TemporaryDirectory(prefix="hrl-", ignore_cleanup_errors=True) as state, (folder / "ray.log").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 - our own command
            [
                str(Path(sys.executable).with_name("ray")),
                *("start", "--head", "--block", "--num-cpus=1", "--object-store-memory=80000000"),
                *("--include-dashboard=true", "--disable-usage-stats", f"--temp-dir={state}"),
                *arguments,
            ],
            env={**os.environ, **environment, "HARBORRL_TEST_RAY": mark},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            yield process, f"http://127.0.0.1:{ports['dashboard-port']}"
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
            _end_marked(mark)


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [held.getsockname()[1] for held in sockets]


def _end_marked(mark: str) -> None:
    """Ray's processes leave their parent and its session; the mark in their environment still tells whose they are."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            if f"HARBORRL_TEST_RAY={mark}".encode() in (entry / "environ").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:
            continue  # it ended by itself, or is not ours to look at

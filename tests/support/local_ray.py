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
    ports = dict(zip(_PORTS, _free_ports(len(_PORTS)), strict=True))
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
            yield f"http://127.0.0.1:{ports['dashboard-port']}"
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
            _end_marked(mark)


def _free_ports(count: int) -> list[int]:
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

"""A server that cannot have what its flags say ends with one line and the code of a wrong command line."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI

from harborrl_agent_server.dispatch.serve import serve
from harborrl_agent_server.doors import doors
from harborrl_agent_server.errors import StartupError
from harborrl_agent_server.sandboxes.local import LocalProvider
from harborrl_agent_server.serve import listen
from harborrl_agent_server.settings import Settings
from support.agent_server import MARKS
from support.agent_tasks import write_task
from support.server_process import ROOT, free_port

pytestmark = MARKS


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        yield holder.getsockname()[1]


async def ended(
    tmp_path: Path, *flags: str, program: tuple[str, ...] = ("-m", "harborrl_agent_server")
) -> tuple[int, str]:
    """The exit code, and what was said that is no entry of the log."""
    write_task(tmp_path / "tasks")
    env = {**os.environ, "HARBOR_TASKS_DIR": str(tmp_path / "tasks"), "PYTHONPATH": str(ROOT / "agent_server")}
    words = (*program, "--sandbox", "local", "--trials-dir", str(tmp_path / "trials"), *flags)
    server = await asyncio.create_subprocess_exec(sys.executable, *words, env=env, stderr=asyncio.subprocess.PIPE)
    _, said = await server.communicate()
    lines = [line for line in said.decode().splitlines() if " INFO " not in line]
    return server.returncode or 0, "\n".join(lines)


@pytest.mark.parametrize("flags", [["--port"], ["--gateway-port"], ["--workers", "2", "--port"]])
async def test_a_port_that_is_taken_is_one_line(tmp_path: Path, taken: int, flags: list[str]) -> None:
    code, said = await ended(tmp_path, "--port", "0", *flags, str(taken))
    assert code == 64
    assert said.startswith(f"harborrl_agent_server: {flags[-1]} {taken} on 127.0.0.1: Address already in use")
    assert "; choose " in said
    assert "\n" not in said


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", "192.0.2.1"])
def test_a_host_that_is_not_this_machines_is_one_line(host: str) -> None:
    with pytest.raises(StartupError, match=f"{host}: .*of this machine"):
        doors("--port", host, 0)


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_server_that_lacks_one_port_keeps_none_of_the_others(tmp_path: Path, taken: int, workers: int) -> None:
    settings = Settings(
        tasks_dir=tmp_path, trials_dir=tmp_path, port=taken, dashboard_port=free_port(), workers=workers
    )
    serving = (
        listen(FastAPI(), settings, LocalProvider().standing)
        if workers == 1
        else serve(settings, tmp_path, [], {}, lambda: None)
    )
    with pytest.raises(StartupError, match=f"--port {taken}"):
        await serving
    socket.create_server((settings.host, settings.dashboard_port)).close()


def test_nobody_is_let_in_before_the_server_serves() -> None:
    [door] = doors("--port", "127.0.0.1", 0)
    with door, pytest.raises(ConnectionRefusedError):
        socket.create_connection(door.getsockname())


def test_a_name_of_two_families_has_a_door_for_each_that_this_machine_has() -> None:
    found = doors("--port", "localhost", 0)
    assert socket.AF_INET in {door.family for door in found}
    for door in found:
        door.close()


TOLD_TO_GO = (
    "import os, signal, sys; from harborrl_agent_server import __main__ as main; "
    "main.serve = lambda _: os.kill(os.getpid(), signal.{}); sys.exit(main.main())"
)


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
async def test_a_server_that_is_told_to_go_while_it_starts_leaves_without_a_word(
    tmp_path: Path, sign: signal.Signals
) -> None:
    assert await ended(tmp_path, program=("-c", TOLD_TO_GO.format(sign.name))) == (0, "")

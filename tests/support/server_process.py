"""The agent server as a process of its own, with sandboxes of this machine, and one trial that it was asked for."""

import asyncio
import contextlib
import os
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import httpx

from support.agent_http import SessionServer, eventually, serving
from support.held_trials import Gate

ROOT = Path(__file__).resolve().parents[2]

LOCAL = ("--sandbox", "local")


@contextlib.asynccontextmanager
async def process(
    tasks: Path, folder: Path, program: Sequence[str], *, sandbox: Sequence[str] = LOCAL
) -> AsyncIterator[tuple[Process, str]]:
    """The running process and its address. `program`: what Python is given before the server's flags."""
    log = folder / "log"
    with log.open("wb") as stderr:
        server = await started(tasks, folder, [*program, *sandbox], stderr=stderr)
    try:
        yield server, await _listening(log)
    finally:
        if server.returncode is None:
            server.kill()
            await server.wait()


async def started(tasks: Path, folder: Path, program: Sequence[str], *, stderr: Any) -> Process:
    flags = ("--port", "0", "--trials-dir", str(folder / "trials"), "--drain-period", "120")
    paths = f"{ROOT / 'agent_server'}:{ROOT / 'tests'}"
    env = {**os.environ, "HARBOR_TASKS_DIR": str(tasks), "PYTHONPATH": paths}
    return await asyncio.create_subprocess_exec(sys.executable, *program, *flags, env=env, stderr=stderr)


def free_port() -> int:
    """For a flag that takes no 0."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


async def _listening(log: Path) -> str:
    await eventually(lambda: "listening on " in text_of(log), limit_s=60)
    return text_of(log).split("listening on ", 1)[1].split()[0]


def text_of(path: Path) -> str:
    return path.read_text()


@contextlib.asynccontextmanager
async def asked(url: str, gate: Gate) -> AsyncIterator[asyncio.Future[httpx.Response]]:
    """The answer to a trial that waits at the gate for its model."""
    session = SessionServer(gate)
    async with serving(session.app) as session_url, httpx.AsyncClient(timeout=300) as client:
        body = {"instance_id": "write-greeting", "base_url": f"{session_url}/sessions/s/v1"}
        run = asyncio.ensure_future(client.post(f"{url}/run", json=body))
        await gate.until(1)
        yield run

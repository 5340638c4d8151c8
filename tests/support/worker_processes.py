"""A server of several processes, its trials held where they wait for their model."""

import asyncio
import contextlib
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from harborrl_agent_server.contract import RunRequest
from harborrl_agent_server.dispatch.choosing import worker_of
from harborrl_agent_server.sessions import run_id
from support.agent_http import SessionServer, serving
from support.held_trials import Gate
from support.server_process import LOCAL, process


@dataclass
class Crew:
    server: Process
    url: str
    session_url: str
    gate: Gate
    client: httpx.AsyncClient
    workers: int

    def body(self, session: str, instance: str = "instance-a") -> dict[str, Any]:
        url = f"{self.session_url}/sessions/{session}/v1"
        return {"instance_id": "write-greeting", "base_url": url, "session_server_instance_id": instance}

    def ask(self, session: str, instance: str = "instance-a") -> asyncio.Future[httpx.Response]:
        return asyncio.ensure_future(self.client.post(f"{self.url}/run", json=self.body(session, instance)))

    async def flush(self, *instances: str) -> dict[str, Any]:
        body = {"session_server_instance_ids": instances}
        document: dict[str, Any] = (await self.client.post(f"{self.url}/flush", json=body)).json()
        return document

    async def health(self) -> dict[str, Any]:
        document: dict[str, Any] = (await self.client.get(f"{self.url}/health")).json()
        return document

    def session_on(self, worker: int, instance: str = "instance-a") -> str:
        """A session that the worker of this number has."""
        names = (f"s{number}" for number in range(1000))
        return next(name for name in names if worker_of(self._id(name, instance), self.workers) == worker)

    def _id(self, session: str, instance: str) -> str:
        return run_id(RunRequest.model_validate(self.body(session, instance)))


@contextlib.asynccontextmanager
async def crew(
    tasks: Path, folder: Path, *, workers: int = 2, slots: int = 4, sandbox: Sequence[str] = LOCAL
) -> AsyncIterator[Crew]:
    gate = Gate()
    session = SessionServer(gate)
    program = ["-m", "harborrl_agent_server", "--workers", str(workers), "--max-concurrent", str(slots)]
    async with (
        serving(session.app) as session_url,
        process(tasks, folder, program, sandbox=sandbox) as (server, url),
        httpx.AsyncClient(timeout=300) as client,
    ):
        yield Crew(server, url, session_url, gate, client, workers)
        gate.opened.set()


def children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def worker_pid(server: int, worker: int) -> int:
    """Of a running worker, by what its dispatcher told it."""
    mark = f"HARBORRL_WORKER={worker}:".encode()
    return next(pid for pid in children(server) if mark in Path(f"/proc/{pid}/environ").read_bytes())

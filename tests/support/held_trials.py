"""Trials that are held where they wait for their model, so that a test decides when they go on."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from support.agent_server import Stage, stage


class Gate:
    """A session server that holds every request until it is opened, and tells when so many wait at it."""

    def __init__(self) -> None:
        self.waiting = 0
        self.peak = 0
        self.opened = asyncio.Event()
        self._arrived = asyncio.Condition()

    async def reply(self) -> str:
        async with self._arrived:
            self.waiting += 1
            self.peak = max(self.peak, self.waiting)
            self._arrived.notify_all()
        try:
            await self.opened.wait()
        finally:
            self.waiting -= 1
        return "TASK_DONE"

    async def until(self, number: int) -> None:
        async with self._arrived, asyncio.timeout(300):
            await self._arrived.wait_for(lambda: self.waiting >= number)

    def __call__(self, _messages: list[dict[str, Any]], _number: int) -> Any:
        return self.reply()


@contextlib.asynccontextmanager
async def held(
    tasks: Path, *groups: tuple[str, int], slots: int, **changes: Any
) -> AsyncIterator[tuple[Stage, Gate, dict[str, Any]]]:
    """Runs of several training sessions that all wait for their model; the tasks are started in order."""
    gate = Gate()
    async with stage(tasks, gate, max_concurrent=slots, **changes) as server:
        runs: dict[str, list[asyncio.Task[dict[str, Any]]]] = {}
        for name, count in groups:
            for _ in range(count):
                runs.setdefault(name, []).append(asyncio.ensure_future(server.run(session_server_instance_id=name)))
        await gate.until(min(slots, sum(count for _, count in groups)))
        try:
            yield server, gate, runs
        finally:
            gate.opened.set()
            await asyncio.gather(*(run for group in runs.values() for run in group), return_exceptions=True)

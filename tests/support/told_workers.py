"""Workers of which a test decides what they tell; the sockets are real, and no process is behind them."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from fastapi import FastAPI, Request, Response

from harborrl_agent_server.admission import Slots
from harborrl_agent_server.dispatch.telling import ROUTE, WIRE, Told
from harborrl_agent_server.dispatch.watching import WorkersSource
from harborrl_agent_server.dispatch.workers import Child, Workers
from harborrl_agent_server.gateway import serving
from harborrl_agent_server.gateway_connections import Connections
from harborrl_agent_server.settings import Settings
from harborrl_agent_server.snapshot import RunView, Snapshot


@dataclass
class Teller:
    """One worker; `ended` are all that ended in it, oldest first."""

    live: list[RunView] = field(default_factory=list)
    ended: list[RunView] = field(default_factory=list)
    status: str = "ok"
    hangs: bool = False
    asked: list[tuple[int, str]] = field(default_factory=list)
    """How many it was said to have told already, and by what bearer, for each question."""
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    def told(self, known: int) -> Told:
        outcomes = {"Submitted": len(self.ended)} if self.ended else {}
        new = tuple(reversed(self.ended[known:]))
        return Told(self.status, len(self.ended), Snapshot(tuple(self.live), new, outcomes, 9, 9, 9, 0))

    def app(self) -> FastAPI:
        app = FastAPI()

        @app.get(ROUTE)
        async def tell(request: Request, ended: int = 0) -> Response:
            self.asked.append((ended, request.headers.get("authorization", "")))
            if self.hangs:
                await self.go_on.wait()
            return Response(WIRE.dump_json(self.told(ended)), media_type="application/json")

        return app


class Crew:
    """Of two; each can be started, killed and started again."""

    def __init__(self, folder: Path, secret: str = "") -> None:
        self.workers = Workers(2, folder, [], {})
        self.tellers = [Teller(), Teller()]
        self.slots = Slots(8)
        self.settings = Settings(folder, folder / "trials", workers=2, admin_secret=secret)
        self.source = WorkersSource(self.workers, self.slots, self.settings)
        self._stacks = [contextlib.AsyncExitStack(), contextlib.AsyncExitStack()]

    async def start(self, index: int) -> None:
        child: Child = self.workers.children[index]
        child.life += 1
        child.worker.socket.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(child.worker.socket))
        await self._stacks[index].enter_async_context(serving(self.tellers[index].app(), listener, Connections()))

    async def kill(self, index: int) -> None:
        self.tellers[index].go_on.set()
        await self._stacks[index].aclose()

    async def until(self, *outcomes: str) -> Snapshot:
        """Looks until trials have ended so, newest first."""
        async with asyncio.timeout(60):
            while True:
                seen = (await self.source.look())[1]
                if [view.outcome for view in seen.finished] == list(outcomes):
                    return seen


@contextlib.asynccontextmanager
async def told_workers(folder: Path, secret: str = "") -> AsyncIterator[Crew]:
    crew = Crew(folder, secret)
    try:
        for index in (0, 1):
            await crew.start(index)
        yield crew
    finally:
        for index in (0, 1):
            await crew.kill(index)
        await crew.workers.close()

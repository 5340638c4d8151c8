"""One dashboard for a server of several processes, with real trials, and a worker that hangs and dies under it."""

import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from harborrl_agent_server.dispatch.lost import WORKER_LOST
from support.agent_server import MARKS
from support.agent_tasks import write_task
from support.server_process import LOCAL, free_port
from support.worker_processes import Crew, crew, worker_pid

pytestmark = MARKS

SECRET = "correct-horse-battery"


class Page:
    """What an open page knows, from the stream alone."""

    def __init__(self) -> None:
        self.server: dict[str, Any] = {}
        self.live: dict[str, dict[str, Any]] = {}
        self.ended: list[dict[str, Any]] = []
        self.outcomes: dict[str, int] = {}

    def take(self, data: dict[str, Any]) -> None:
        self.server = data.get("server", self.server)
        changed = data.get("live", {"set": [], "gone": []})
        self.live |= {row["key"]: row for row in changed["set"]}
        for gone in changed["gone"]:
            del self.live[gone]
        self.ended += data.get("ended", [])
        self.outcomes = data.get("outcomes", self.outcomes)

    def phases(self) -> dict[int, str]:
        return {row["worker"]: row["phase"] for row in self.live.values()}


async def shown(client: httpx.AsyncClient, board: str) -> AsyncIterator[Page]:
    """The page after each message, over one connection."""
    page = Page()
    async with client.stream("GET", f"{board}/api/events") as stream:
        async for line in stream.aiter_lines():
            if line.startswith("data: "):
                page.take(json.loads(line.removeprefix("data: ")))
                yield page


async def until(pages: AsyncIterator[Page], holds: Callable[[Page], bool]) -> Page:
    async for page in pages:
        if holds(page):
            return page
    raise AssertionError("the stream ended")


@contextlib.asynccontextmanager
async def watched(tmp_path: Path) -> AsyncIterator[tuple[Crew, httpx.AsyncClient, str]]:
    """A server of two workers, a client that knows its secret, and the address of its dashboard."""
    write_task(tmp_path / "tasks", verify="echo checked; echo 1 >/logs/verifier/reward.txt")
    port = free_port()
    async with (
        crew(tmp_path / "tasks", tmp_path, sandbox=(*LOCAL, "--dashboard-port", str(port))) as server,
        httpx.AsyncClient(timeout=120, trust_env=False, headers={"Authorization": f"Bearer {SECRET}"}) as client,
    ):
        yield server, client, f"http://127.0.0.1:{port}"


async def test_trials_of_all_workers_are_followed_on_one_page_and_a_dead_workers_are_shown_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARBOR_ADMIN_SECRET", SECRET)
    async with watched(tmp_path) as (server, client, board):
        assert (await server.client.get(f"{board}/api/state")).status_code == 401
        assert (await client.get(f"{server.url}/snapshot")).status_code == 404  # what workers tell is no route of ours
        lost, spared = (server.ask(server.session_on(worker)) for worker in (0, 1))
        pages = shown(client, board)
        page = await until(pages, lambda page: page.phases() == {0: "running", 1: "running"})
        assert page.server["in_flight"] == 2
        hanging = worker_pid(server.server.pid, 0)
        os.kill(hanging, signal.SIGSTOP)
        await until(pages, lambda page: bool(page.server["silent"] == [0]))
        assert (page.server["status"], page.phases()) == ("degraded", {0: "running", 1: "running"})
        os.kill(hanging, signal.SIGKILL)
        await until(pages, lambda page: bool(page.ended) and page.server["status"] == "ok")
        assert page.phases() == {1: "running"}
        assert [(row["worker"], row["status"], row["cause"]) for row in page.ended] == [(0, "ServerError", WORKER_LOST)]
        with pytest.raises(httpx.RemoteProtocolError):
            await lost
        server.gate.opened.set()
        answer = (await spared).json()
        await until(pages, lambda page: len(page.ended) == 2)
        assert [(row["worker"], row["status"], row["reward"]) for row in page.ended[1:]] == [(1, "Submitted", 1.0)]
        assert page.outcomes == {"ServerError": 1, "Submitted": 1}
        trial = (await client.get(f"{board}/api/trials/{answer['trial_name']}")).json()
        assert trial["verifier"]["test-stdout.txt"].strip() == "checked"
        server.server.terminate()
        async for _ in pages:
            pass
        assert await server.server.wait() == 0

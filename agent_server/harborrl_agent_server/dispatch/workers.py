"""The worker processes: started, watched, started again when they die, told to go together."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from harborrl_agent_server.bounded import finish
from harborrl_agent_server.dispatch.lives import FIRST_PAUSE, Signs, pause_after
from harborrl_agent_server.errors import StartupError
from harborrl_agent_server.guard import LOOK_SECONDS
from harborrl_agent_server.settings import WORKER, Worker

LOG = logging.getLogger(__name__)

KILL_SECONDS = 5.0
"""For the end of a killed process to be heard of; one that waits for a volume that hangs is left to the kernel."""

LOOK = httpx.Timeout(3)
"""Seconds for a worker to say how it is: below the 5 s in which a probe of the kubelet wants its answer."""


def client_of(socket: Path) -> httpx.AsyncClient:
    """A new connection a request: one that was kept may be closed by the worker in the moment in which it is used."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    transport = httpx.AsyncHTTPTransport(uds=str(socket), limits=limits, trust_env=False)
    return httpx.AsyncClient(transport=transport, timeout=httpx.Timeout(None, connect=5), base_url="http://worker")


class Child:
    """One worker's place: its sockets, and the process that sits there now."""

    def __init__(self, worker: Worker, argv: Sequence[str], environ: Mapping[str, str]) -> None:
        self.worker = worker
        self.client = client_of(worker.socket)
        self.gateway = client_of(worker.gateway_socket)
        self._argv = [sys.executable, "-m", "harborrl_agent_server", *argv]
        self._environ = {**environ, WORKER: f"{worker.index}:{worker.folder}"}
        self.life = 0
        """How many processes have sat here, the present one included."""
        self._process: Process | None = None
        self._is_to_go = False
        self._signs = Signs(time.monotonic())

    async def run(self) -> int:
        """One process, from its start to its exit code."""
        self._signs = Signs(time.monotonic())
        self.life += 1
        self._process = await asyncio.create_subprocess_exec(*self._argv, env=self._environ)
        if self._is_to_go:
            self.send(signal.SIGTERM)
        return await self._process.wait()

    def heard(self) -> None:
        self._signs.heard(time.monotonic())

    def end_if_it_hangs(self) -> None:
        if self.is_running and self._signs.are_missing(time.monotonic()):
            LOG.error("worker %d gives no sign of life for %.0f s; killed", self.worker.index, self._signs.limit_s)
            self.send(signal.SIGKILL)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def leave(self) -> None:
        """Also a process that is just being started."""
        self._is_to_go = True
        self.send(signal.SIGTERM)

    def send(self, sign: signal.Signals) -> None:
        if self._process is not None and self.is_running:
            self._process.send_signal(sign)

    async def is_up(self) -> bool:
        try:
            return (await self.client.get("/ready", timeout=LOOK)).status_code == 200
        except httpx.HTTPError:
            return False

    async def close(self) -> None:
        """Its process, if one runs, is ended."""
        self.send(signal.SIGKILL)
        if self._process is not None:
            await finish(self._process.wait(), KILL_SECONDS)
        await self.client.aclose()
        await self.gateway.aclose()


class Workers:
    def __init__(self, number: int, folder: Path, argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> None:
        self.children = [Child(Worker(index, folder), argv, dict(environ)) for index in range(number)]
        self.leaving = False
        self._lives: list[asyncio.Task[None]] = []
        self._first_end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._told_to_go = asyncio.Event()

    def heard(self, index: int) -> None:
        if 0 <= index < len(self.children):
            self.children[index].heard()

    async def start(self) -> None:
        """Returns when all are up; raises `StartupError` when one ends before, which has said why."""
        self._lives = [asyncio.ensure_future(self._live(child)) for child in self.children]
        up = asyncio.ensure_future(self._all_up())
        both: set[asyncio.Future[Any]] = {up, self._first_end}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not up.done():
                code = self._first_end.result()
                raise StartupError(f"a worker ended with {code} before it was ready; it says why above")
        finally:
            up.cancel()

    async def _all_up(self) -> None:
        for child in self.children:
            while not await child.is_up():  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.1)

    async def _live(self, child: Child) -> None:
        pause = FIRST_PAUSE
        while not self.leaving:
            began = time.monotonic()
            code = await child.run()
            if not self._first_end.done():
                self._first_end.set_result(code)
            if self.leaving:
                return
            pause = pause_after(time.monotonic() - began, pause)
            said = "worker %d ended with %d; its trials are lost, and it is started again in %.0f s"
            LOG.error(said, child.worker.index, code, pause)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._told_to_go.wait(), pause)

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for child in self.children:
                child.end_if_it_hangs()

    async def leave(self) -> None:
        """Tell all to go; returns when they have gone, each as it leaves by itself."""
        self.leaving = True
        self._told_to_go.set()
        for child in self.children:
            child.leave()
        await asyncio.gather(*self._lives, return_exceptions=True)

    async def close(self) -> None:
        """Whatever still runs is ended."""
        self.leaving = True
        for life in self._lives:
            life.cancel()
        await asyncio.gather(*self._lives, return_exceptions=True)
        for child in self.children:
            await child.close()

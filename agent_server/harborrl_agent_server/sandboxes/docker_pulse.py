"""Whether the daemon answers at all: a command in a sandbox may be silent for an hour, a hung daemon is so too."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from harborrl_agent_server.errors import SandboxTransportError

LOG = logging.getLogger(__name__)

BEAT_SECONDS = 10.0

MISSES = 2
"""Unanswered questions in a row before the daemon counts as silent: a loaded machine may leave out one."""


class Pulse:
    """One question now and then for all sandboxes of a server."""

    def __init__(self, ask: Callable[[], Awaitable[object]]) -> None:
        self._ask = ask
        self._missed = 0
        self._silent = asyncio.Event()

    async def beat(self) -> None:
        try:
            await self._ask()
        except SandboxTransportError as error:
            self._missed += 1
            if self._missed == MISSES:
                LOG.warning("the Docker daemon is silent (%s): commands that run there are given up", error)
                self._silent.set()
        else:
            self._missed = 0
            self._silent.clear()

    async def keep_beating(self) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            await self.beat()

    async def unless_silent[Result](self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of `work`; `SandboxTransportError` when the daemon falls silent before it is there."""
        working, silence = asyncio.ensure_future(work), asyncio.ensure_future(self._silent.wait())
        try:
            await asyncio.wait({working, silence}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise SandboxTransportError("the Docker daemon does not answer any more")
            return working.result()
        finally:
            for task in (working, silence):
                task.cancel()
            await asyncio.gather(working, silence, return_exceptions=True)

"""Keeps the newest state of the server and tells every open page what has changed since it was last told."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from harborrl_agent_server.dashboard.state import NOTHING, StepReward, after, changes
from harborrl_agent_server.snapshot import Snapshot

LOG = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""Between two looks at the runs while somebody watches: one pass over them, or one question to each worker."""

IDLE_SECONDS = 5.0
"""Between two looks while nobody watches: of the last 200 trials that a process remembers, none is missed so."""

STEPS_SECONDS = 10.0
"""Between two looks at the trainer's records, while somebody watches."""

BEAT_SECONDS = 10.0
"""A page that hears nothing for longer knows that it is cut off."""

WATCHERS = 50
"""Open pages at most: each is a connection of this server."""

Event = tuple[str, dict[str, Any]]
"""(name, data) of a server-sent event."""


class Source(Protocol):
    """Where the runs are: in this process, or in workers that a dispatcher asks."""

    async def look(self) -> tuple[str, Snapshot]:
        """What the server says of itself (`status` of `/health`), and its runs."""


class TooManyWatchersError(Exception):
    """All places for open pages are taken."""


class Feed:
    def __init__(
        self,
        source: Source,
        steps: Callable[[], tuple[StepReward, ...]],
        *,
        threads: ThreadPoolExecutor,
        clock: Callable[[], float] = time.time,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.state = NOTHING
        self.watchers = 0
        self._source = source
        self._read_steps = steps
        self._threads = threads
        self._clock = clock
        self._pause = pause
        self._steps: tuple[StepReward, ...] = ()
        self._steps_due = 0.0
        self._reading: asyncio.Future[tuple[StepReward, ...]] | None = None
        self._news = asyncio.Event()
        self._watched = asyncio.Event()
        self.closed = False

    async def follow(self) -> None:
        """Look again and again; a look that fails is logged once and tried again."""
        complained = False
        while not self.closed:
            try:
                await self.look()
                complained = False
            except Exception:  # a page that is out of date must not end the server that it is about
                if not complained:
                    LOG.exception("the dashboard could not look at the runs")
                complained = True
            await self._pause(LOOK_SECONDS)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._watched.wait(), IDLE_SECONDS - LOOK_SECONDS)

    async def look(self) -> None:
        now = self._clock()
        self._follow_steps(now)
        status, seen = await self._source.look()
        new = after(self.state, seen, status=status, now=now, steps=self._steps)
        if changes(self.state, new):
            self.state = new
            self._tell()

    def _follow_steps(self, now: float) -> None:
        """Take in what a thread has read, and send it again when it is due. Nobody waits for it: volumes can hang."""
        if self._reading is not None and self._reading.done():
            done, self._reading = self._reading, None
            self._steps = done.result()
        if self._reading is None and self.watchers and now >= self._steps_due:
            self._steps_due = now + STEPS_SECONDS
            self._reading = asyncio.get_running_loop().run_in_executor(self._threads, self._read_steps)

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    def close(self) -> None:
        """Every open stream ends: a server that leaves must not wait for its pages."""
        self.closed = True
        self._watched.set()
        self._tell()

    def whole(self) -> Event:
        return "state", {"now": self._clock(), **changes(NOTHING, self.state)}

    async def watch(self) -> AsyncGenerator[Event]:
        """The whole state, then its changes, with a sign of life in between. Slow readers skip, they never queue."""
        if self.watchers >= WATCHERS:
            raise TooManyWatchersError
        self.watchers += 1
        self._watched.set()
        try:
            if self.watchers == 1:
                self._steps_due = 0.0
            await self.look()
            told = self.state
            yield self.whole()
            heard = self._clock()
            while not self.closed:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), BEAT_SECONDS)
                told, found = self.state, changes(told, self.state)
                now = self._clock()
                if found or now - heard >= BEAT_SECONDS:
                    heard = now
                    yield "change", {"now": now, **found}
        finally:
            self.watchers -= 1
            if not self.watchers and not self.closed:
                self._watched.clear()

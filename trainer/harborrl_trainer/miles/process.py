"""What all trials of one rollout process share: client, places, counters, trial log, and the end of a hopeless run."""

import asyncio
import atexit
import logging
import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from harborrl_trainer.miles import at_exit
from harborrl_trainer.miles.call import Call
from harborrl_trainer.miles.records import Records
from harborrl_trainer.miles.settings import Settings
from harborrl_trainer.rollout.agent_client import AgentClient, AgentServerError
from harborrl_trainer.rollout.groups import EveryGroupAborted, EveryGroupHopeless
from harborrl_trainer.rollout.inflight import InFlight, follow_capacity
from harborrl_trainer.rollout.ledger import Ledger

logger = logging.getLogger(__name__)

CAPACITY_POLL_S = 5.0
ABORT_POLL_S = 0.5
"""Miles 9a00364 has no hook for its over-sampling abort, and waits for every trial in flight: so it is looked for."""
NO_BOUND = 1_000_000
"""Places without a bound of our own."""
SURPLUS = "enough groups were collected"


class GaveUp(BaseException):
    """The run ends here. Not an Exception: Miles' synchronous loop logs those of a group and submits the next one."""


class Process:
    """Belongs to the event loop on which it was made, and lives as long as the rollout process.

    Miles tells no rollout function that it is done with it. A process that leaves by itself says its last words by
    atexit; one that Ray kills says none, and then the supervisor's flush is what cancels its trials.
    """

    def __init__(self, settings: Settings, client: AgentClient, clock: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
        self.client = client
        self.clock = clock
        self.ledger = Ledger()
        self.places = InFlight(settings.max_in_flight or NO_BOUND)
        self.records = Records(settings, self.ledger)
        self.calls: set[Call] = set()
        self.over: GaveUp | None = None
        self._session_servers: set[str] = set()
        self._measured = asyncio.Event()
        self._abandoned: set[asyncio.Future[Any]] = set()
        self.tasks = {asyncio.create_task(self._follow_capacity()), asyncio.create_task(self._watch_aborts())}
        atexit.register(self._leave)

    async def ready(self) -> None:
        """The agent server has been asked for its capacity once, whatever it said."""
        await self._measured.wait()
        if self.over:
            raise GaveUp(str(self.over))

    def knows(self, args: Any) -> None:
        """Takes the names of the session servers from Miles' arguments: all of them, or the one of old versions."""
        several = getattr(args, "session_server_instance_ids", None) or {}
        one = getattr(args, "session_server_instance_id", None)
        for name in [*(several.values() if hasattr(several, "values") else several), one]:
            self.knows_session_server(name)

    def knows_session_server(self, name: Any) -> None:
        self._session_servers.update([str(name)] if name else [])

    async def surplus(self, calls: Iterable[Call]) -> None:
        """Enough groups are there: ends these trials, and counts the groups that will not be whole any more."""
        self.records.surplus()
        await self.stop(calls, SURPLUS)

    async def stop(self, calls: Iterable[Call], why: str) -> None:
        """Ends these trials here, which closes their connections, and all of this trainer's at the agent server."""
        for call in calls:
            call.stop(why)
        await self.flush()

    async def flush(self) -> None:
        names = sorted(self._session_servers)
        if not names:
            return
        try:
            cancelled = await self.client.flush(names)
            logger.info("flushed %d trials of session servers %s", cancelled, ", ".join(names))
        except AgentServerError as error:
            logger.warning("flush failed, its trials run until their own limits: %s", error)

    def abandon(self, work: "asyncio.Future[Any]") -> None:
        """Cancels what may take minutes to go, and does not wait for it."""
        work.cancel()
        self._abandoned.add(work)
        work.add_done_callback(self._abandoned.discard)
        work.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def give_up(self, error: EveryGroupAborted) -> GaveUp:
        """Ends the run: from here on every trial raises what this returns."""
        if self.over is None:
            self.over = GaveUp(str(error))
            self.records.close()
            code = 64 if isinstance(error, EveryGroupHopeless) else 69
            at_exit.write_verdict(self.settings.verdict_file, code, str(error))
            logger.error("giving up: %s", error)
            await self.stop(list(self.calls), "the run has ended")
        return self.over

    async def close(self) -> None:
        """For whoever runs several in one process, as tests do: ends the background tasks, and says no last words."""
        atexit.unregister(self._leave)
        for task in [*self.tasks, *self._abandoned]:
            task.cancel()
        await asyncio.gather(*self.tasks, *self._abandoned, return_exceptions=True)
        await self.client.close()
        self.records.close()
        forget(self)

    def _leave(self) -> None:
        self.records.close()
        if self.ledger.in_flight:
            at_exit.flush_now(self.settings, sorted(self._session_servers))

    async def _follow_capacity(self) -> None:
        async def pause() -> None:
            self._measured.set()
            await asyncio.sleep(CAPACITY_POLL_S)

        while True:
            # A server without a capacity in its health, or away for a while: the places stay as they are.
            with suppress(AgentServerError):
                await follow_capacity(self.places, self.client.health, pause)
            await pause()

    async def _watch_aborts(self) -> None:
        while True:
            await asyncio.sleep(ABORT_POLL_S)
            unwanted = [call for call in self.calls if call.unwanted() and not call.stopped.is_set()]
            if unwanted:
                await self.surplus(unwanted)


_OF_LOOP: "WeakKeyDictionary[asyncio.AbstractEventLoop, Process]" = WeakKeyDictionary()


def current(make: Callable[[], Process]) -> Process:
    """The running loop's process; the first trial makes it."""
    loop = asyncio.get_running_loop()
    if loop not in _OF_LOOP:
        _OF_LOOP[loop] = make()
    return _OF_LOOP[loop]


def existing() -> "Process | None":
    return _OF_LOOP.get(asyncio.get_running_loop())


def forget(process: Process) -> None:
    for loop, known in list(_OF_LOOP.items()):
        if known is process:
            del _OF_LOOP[loop]


def from_environment() -> Process:
    """Raises SettingsError."""
    settings = Settings.from_environment(os.environ)
    client = AgentClient(
        settings.agent_server_url, ceiling_s=settings.ceiling_s, admin_secret=settings.admin_secret or None
    )
    return Process(settings, client)

"""One operator process, from its start to its exit code: be a spare, lead, and stop in an order that loses nothing."""

import asyncio
import logging
import os
import signal
import socket
import time
import uuid
from collections.abc import Mapping
from typing import Any

from harborrl_operator import metrics
from harborrl_operator.cluster import Cluster
from harborrl_operator.elector import Elector
from harborrl_operator.models import Settings
from harborrl_operator.probes import Probes
from harborrl_operator.runtime import Runtime
from harborrl_operator.scope import served
from harborrl_operator.transport import fenced
from harborrl_operator.watching import watch

logger = logging.getLogger(__name__)

PROBE_PORT = 8080

CLOSE_SECONDS = 8.0
"""kopf's own end: it waits at most 5 s for what it started."""


async def operate(environment: Mapping[str, str]) -> int:
    """The exit code: 0 when it was told to stop, 1 when it could not go on and must be started again."""
    stop = asyncio.Event()
    _stop_on_signals(stop)
    cluster = (await Cluster.connect()).through(metrics.counted)
    try:
        settings, closed = await served(cluster, Settings.from_environment(environment))
        if closed:
            logger.error("namespaces that do not let us serve them: %s; is one of them gone?", ", ".join(closed))
        process = Process(cluster, settings, closed, _identity(environment), stop)
        return await process.run(int(environment.get("HARBORRL_PROBE_PORT", PROBE_PORT)))
    finally:
        await cluster.close()


class Process:
    """A candidate that leads once it is elected."""

    def __init__(
        self, cluster: Cluster, settings: Settings, closed: tuple[str, ...], identity: str, stop: asyncio.Event
    ) -> None:
        self._settings, self._stop = settings, stop
        self._elector = Elector(cluster, settings.operator_namespace, identity, time.monotonic)
        fenced_cluster = cluster.through(lambda send: fenced(send, self._elector.seconds_left))
        self._runtime = Runtime(fenced_cluster, settings, closed)
        self._probes = Probes(self._elector, self._runtime)

    async def run(self, port: int) -> int:
        await self._probes.start(port)
        election = asyncio.create_task(self._elector.run(), name="election")
        stopped = asyncio.create_task(self._stop.wait(), name="stop")
        elected = asyncio.create_task(self._elector.elected.wait(), name="elected")
        try:
            await _first(elected, stopped, election)
            if stopped.done() or election.done():
                return _code_of(stopped, election)
            return await self._lead(stopped, election)
        finally:
            for task in (election, stopped, elected):
                task.cancel()
            await self._elector.release()
            await self._probes.stop()

    async def _lead(self, stopped: asyncio.Task[Any], election: asyncio.Task[Any]) -> int:
        self._runtime.start()
        end_watch = asyncio.Event()
        watching = await watch(self._runtime, self._settings, end_watch)
        _stop_on_signals(self._stop)  # kopf has put its own handlers in their place
        try:
            await _first(stopped, election, watching, *self._runtime.tasks)
            return _code_of(stopped, election, watching, *self._runtime.tasks)
        finally:
            end_watch.set()
            if self._elector.seconds_left() > 0:
                await self._runtime.drain()
                # kopf writes nothing: the next leader need not wait for its end.
                await self._elector.release()
            else:
                self._runtime.abandon()
            await asyncio.wait((watching,), timeout=CLOSE_SECONDS)


async def _first(*tasks: asyncio.Task[Any]) -> None:
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)


def _code_of(stopped: asyncio.Task[Any], *others: asyncio.Task[Any]) -> int:
    """That anything but the wish to stop has ended is a fault."""
    ended = [task for task in others if task.done()]
    for task in ended:
        fault = None if task.cancelled() else task.exception()
        logger.error("%s ended: %s", task.get_name(), fault or "nobody told it to", exc_info=fault)
    return 1 if ended or not stopped.done() else 0


def _identity(environment: Mapping[str, str]) -> str:
    """Of this process life: one that is started again must not take an old lease for its own."""
    return f"{environment.get('POD_NAME') or socket.gethostname()}_{uuid.uuid4().hex[:8]}"


def _stop_on_signals(stop: asyncio.Event) -> None:
    for wanted in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(wanted, stop.set)


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    return asyncio.run(operate(os.environ))

"""What a leader does beside watching: the queue of passes, the sweeper and the heartbeat."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from harborrl_operator import metrics
from harborrl_operator.applied import Applied
from harborrl_operator.cluster import Cluster
from harborrl_operator.errors import ClusterError, JobGoneError
from harborrl_operator.job_book import JobBook
from harborrl_operator.liveness import BEAT_SECONDS, Liveness, OutdatedWatchError, heartbeat, live_watchers, unwatched
from harborrl_operator.models import Settings
from harborrl_operator.pod_events import PodEvents
from harborrl_operator.reconcile import Reconciler
from harborrl_operator.scope import lets_us
from harborrl_operator.sweeper import SWEEP_SECONDS, sweep
from harborrl_operator.work_queue import Key, WorkQueue

logger = logging.getLogger(__name__)

DRAIN_SECONDS = 15.0
"""Passes under way have this long to end; what is cut off is done again by the next leader."""


class Runtime:
    """Lives as long as this process leads."""

    def __init__(self, cluster: Cluster, settings: Settings, closed: tuple[str, ...] = ()) -> None:
        self._cluster, self._settings = cluster, settings
        self._closed = closed
        """Namespaces that we would serve and that did not let us when this process began."""
        self._reconciler = Reconciler(cluster, settings, lambda: datetime.now(UTC))
        self.queue = WorkQueue(self._pass)
        self.liveness = Liveness(time.monotonic)
        self.jobs = JobBook()
        self.pod_events = PodEvents()
        self._sweep_wanted = asyncio.Event()
        self.tasks: list[asyncio.Task[None]] = []
        """Each should run until `drain`; one that ends by itself is a fault."""

    def start(self) -> None:
        self.tasks = [
            asyncio.create_task(self.queue.run(), name="queue"),
            asyncio.create_task(self._every(SWEEP_SECONDS, self._sweep, self._sweep_wanted), name="sweeper"),
            asyncio.create_task(self._every(BEAT_SECONDS, self._beat), name="heartbeat"),
        ]

    async def drain(self) -> None:
        """Start no further pass and finish those under way."""
        for task in self.tasks:
            task.cancel()
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                await asyncio.gather(*self.tasks, return_exceptions=True)
        except TimeoutError:
            logger.warning("passes were cut off after %.0f s", DRAIN_SECONDS)

    def abandon(self) -> None:
        """Drop everything at once: nothing can be written any more."""
        for task in self.tasks:
            task.cancel()

    @property
    def applied(self) -> Applied:
        return self._reconciler.applied

    def sweep_soon(self) -> None:
        self._sweep_wanted.set()

    def fault(self) -> str | None:
        """What is wrong with this process, None when all is well."""
        ended = [task.get_name() for task in self.tasks if task.done()]
        return self.liveness.fault(self._watchers(), ended)

    def publish(self) -> None:
        """Bring the gauges up to date."""
        metrics.WATCH_AGE.set(self.liveness.age())
        metrics.QUEUED.set(len(self.queue))
        metrics.show_jobs(self.jobs.phases(), self.jobs.stalled())

    def _watchers(self) -> set[str]:
        return live_watchers(len(self._settings.namespaces) or 1)

    async def _pass(self, key: Key) -> float | None:
        begun = time.perf_counter()
        result = "error"
        try:
            again = await self._reconciler.reconcile(*key)
            result = "ok"
        except JobGoneError:
            logger.info("%s/%s was deleted during a pass", *key)
            again, result = None, "gone"
        finally:
            metrics.PASSES.labels(result).inc()
            metrics.SECONDS.observe(time.perf_counter() - begun)
        return again

    async def _sweep(self) -> None:
        await sweep(self._cluster, self._settings)

    async def _beat(self) -> None:
        for kind in unwatched(self._watchers()):
            if await self._cluster.serves(kind):
                raise OutdatedWatchError(f"{kind} is served now; it was not when watching began")
        for namespace in self._closed:
            if await lets_us(self._cluster, namespace):
                raise OutdatedWatchError(f"namespace {namespace} lets us serve it now; it did not when watching began")
        await self._cluster.apply(heartbeat(self._settings.heartbeat_namespace, int(time.time())))
        self.liveness.sent()

    async def _every(
        self, seconds: float, work: Callable[[], Awaitable[None]], wanted: asyncio.Event | None = None
    ) -> None:
        """Forever; a refusal is logged and the next round tries again."""
        wake = wanted or asyncio.Event()
        trouble = ""
        while True:
            try:
                await work()
                trouble = ""
            except ClusterError as error:
                if str(error) != trouble:
                    logger.warning("%s", error)
                trouble = str(error)
            try:
                await asyncio.wait_for(wake.wait(), seconds)
            except TimeoutError:
                continue
            wake.clear()

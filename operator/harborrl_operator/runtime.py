"""What runs beside kopf: the queue, the sweeper, the heartbeat and the probe server; started and stopped together."""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from harborrl_operator import metrics
from harborrl_operator.cluster import Cluster
from harborrl_operator.errors import ClusterError
from harborrl_operator.liveness import BEAT_SECONDS, Liveness, heartbeat, live_watchers
from harborrl_operator.models import Settings
from harborrl_operator.reconcile import Reconciler
from harborrl_operator.sweeper import SWEEP_SECONDS, end_hung_servers, sweep
from harborrl_operator.work_queue import Key, WorkQueue

logger = logging.getLogger(__name__)

PROBE_PORT = 8080


class Runtime:
    """One operator process."""

    def __init__(self, cluster: Cluster, settings: Settings) -> None:
        self._cluster, self._settings = cluster, settings
        self._reconciler = Reconciler(cluster, settings, lambda: datetime.now(UTC))
        self.queue = WorkQueue(self._pass)
        self.liveness = Liveness(time.monotonic)
        self._sweep_wanted = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._server: web.AppRunner | None = None

    async def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self.queue.run(), name="queue"),
            asyncio.create_task(self._every(SWEEP_SECONDS, self._sweep, self._sweep_wanted), name="sweeper"),
            asyncio.create_task(self._every(BEAT_SECONDS, self._beat), name="heartbeat"),
        ]
        await self._serve_probes()

    async def stop(self) -> None:
        """Finish the passes under way, then close."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.cleanup()
        await self._cluster.close()

    def sweep_soon(self) -> None:
        self._sweep_wanted.set()

    async def _pass(self, key: Key) -> float | None:
        begun = time.perf_counter()
        result = "error"
        try:
            again = await self._reconciler.reconcile(*key)
            result = "ok"
        finally:
            metrics.PASSES.labels(result).inc()
            metrics.SECONDS.observe(time.perf_counter() - begun)
        return again

    async def _sweep(self) -> None:
        metrics.SWEPT.inc(await sweep(self._cluster))
        await end_hung_servers(self._cluster, datetime.now(UTC))

    async def _beat(self) -> None:
        await self._cluster.apply(heartbeat(self._settings.operator_namespace, int(time.time())))
        self.liveness.sent()

    async def _every(
        self, seconds: float, work: Callable[[], Awaitable[None]], wanted: asyncio.Event | None = None
    ) -> None:
        """Forever; a refusal is logged and the next round tries again."""
        wake = wanted or asyncio.Event()
        while True:
            try:
                await work()
            except ClusterError as error:
                logger.warning("%s", error)
            try:
                await asyncio.wait_for(wake.wait(), seconds)
            except TimeoutError:
                continue
            wake.clear()

    async def _serve_probes(self) -> None:
        app = web.Application()
        app.add_routes([web.get("/healthz", self._healthz), web.get("/metrics", self._metrics)])
        self._server = web.AppRunner(app, access_log=None)
        await self._server.setup()
        port = int(os.environ.get("HARBORRL_PROBE_PORT", str(PROBE_PORT)))
        await web.TCPSite(self._server, "0.0.0.0", port).start()  # noqa: S104 - the kubelet probes the pod's address

    async def _healthz(self, _: web.Request) -> web.Response:
        ended = [task.get_name() for task in self._tasks if task.done()]
        fault = self.liveness.fault(live_watchers(), ended)
        return web.Response(text=fault or "ok", status=503 if fault else 200)

    async def _metrics(self, _: web.Request) -> web.Response:
        metrics.WATCH_AGE.set(self.liveness.age())
        metrics.QUEUED.set(len(self.queue))
        return web.Response(body=generate_latest(metrics.REGISTRY), headers={"Content-Type": CONTENT_TYPE_LATEST})

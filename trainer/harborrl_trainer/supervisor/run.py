"""The supervisor as a process: real clock, real transports, signals."""

import asyncio
import signal
import sys
import time

import httpx

from harborrl_trainer.job import JobDocument
from harborrl_trainer.supervisor import progress
from harborrl_trainer.supervisor.cluster import KubernetesCluster
from harborrl_trainer.supervisor.ending import DEFAULT_MARKS, Marks
from harborrl_trainer.supervisor.ray_api import RayApi
from harborrl_trainer.supervisor.sidecar import Supervisor, World

DASHBOARD = "http://127.0.0.1:8265"
TIMEOUT_SECONDS = 5.0


def supervise(job: JobDocument, attempt: int) -> int:
    asyncio.run(_supervise(job, attempt))
    return 0


async def _supervise(job: JobDocument, attempt: int) -> None:
    cluster = KubernetesCluster(job)
    async with (
        httpx.AsyncClient(base_url=DASHBOARD, timeout=TIMEOUT_SECONDS, trust_env=False) as ray,
        httpx.AsyncClient(timeout=TIMEOUT_SECONDS, trust_env=False) as agents,
    ):
        world = World(
            ray=RayApi(ray),
            cluster=cluster,
            marks=Marks(DEFAULT_MARKS),
            ask_load=lambda: ask_load(agents, job.agent_server.url),
            now=time.time,
            sleep=asyncio.sleep,
            say=_say,
        )
        supervisor = Supervisor(job, attempt, world)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, supervisor.leave)
        try:
            await supervisor.live()
        finally:
            await cluster.close()


async def ask_load(client: httpx.AsyncClient, url: str) -> progress.ServerLoad | None:
    """Capacity and trials in flight of the agent server; None when it does not say."""
    try:
        answer = (await client.get(f"{url.rstrip('/')}/health")).json()
        return progress.ServerLoad(int(answer["capacity"]), int(answer["in_flight"]))
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return None


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()

"""The supervisor as a process: real clock, real transports, signals."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import httpx

from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.job import JobDocument
from harborrl_trainer.supervisor.agents import HttpAgents
from harborrl_trainer.supervisor.cluster import KubernetesCluster
from harborrl_trainer.supervisor.ending import DEFAULT_MARKS, Marks
from harborrl_trainer.supervisor.entry import entry_of
from harborrl_trainer.supervisor.ray_api import RayApi
from harborrl_trainer.supervisor.sidecar import Supervisor, World

DASHBOARD = "http://127.0.0.1:8265"
TIMEOUT_SECONDS = 5.0


def supervise(job: JobDocument, attempt: int) -> int:
    # Miles' image has another user: what the two share they share by the pod's group (fsGroup).
    os.umask(0o002)
    asyncio.run(_supervise(job, attempt))
    return 0


async def _supervise(job: JobDocument, attempt: int) -> None:
    cluster = KubernetesCluster(job)
    async with (
        httpx.AsyncClient(
            base_url=DASHBOARD, timeout=TIMEOUT_SECONDS, trust_env=False, headers=ray_headers(os.environ)
        ) as ray,
        httpx.AsyncClient(timeout=TIMEOUT_SECONDS, trust_env=False) as agents,
    ):
        world = World(
            ray=RayApi(ray),
            cluster=cluster,
            marks=Marks(DEFAULT_MARKS),
            agents=HttpAgents(job, agents),
            now=time.time,
            sleep=asyncio.sleep,
            say=_say,
        )
        supervisor = Supervisor(job, attempt, world, entry_of(job))
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, supervisor.leave)
        try:
            await supervisor.live()
        finally:
            await cluster.close()


def ray_headers(environment: Mapping[str, str]) -> dict[str, str]:
    """Ray's token, where the cluster asks for one: the same variables that Ray's own processes read."""
    token, path = environment.get("RAY_AUTH_TOKEN"), environment.get("RAY_AUTH_TOKEN_PATH")
    if not token and path:
        try:
            token = Path(path).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ConfigurationError(
                f"RAY_AUTH_TOKEN_PATH: cannot read {path} ({error.strerror}); mount Ray's token there"
            ) from error
    return {"Authorization": f"Bearer {token}"} if token else {}


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()

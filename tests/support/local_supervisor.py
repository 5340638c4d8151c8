"""The supervisor as a process of its own, beside a local Ray; its ConfigMaps are files."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, override

import httpx

from harborrl_trainer import files
from harborrl_trainer.job import read_job
from harborrl_trainer.supervisor.agents import Agents, ServerLoad
from harborrl_trainer.supervisor.cluster import Cluster, Stored
from harborrl_trainer.supervisor.ending import Marks
from harborrl_trainer.supervisor.entry import by_command
from harborrl_trainer.supervisor.ray_api import RayApi
from harborrl_trainer.supervisor.run import ray_headers
from harborrl_trainer.supervisor.sidecar import Supervisor, World


class FileCluster(Cluster):
    def __init__(self, path: Path) -> None:
        self._path = path

    @override
    async def read_progress(self) -> Stored:
        document = json.loads(self._path.read_text()) if self._path.exists() else None
        return Stored(document, "")

    @override
    async def write_progress(self, document: Mapping[str, Any], version: str) -> str:
        files.replace(self._path, json.dumps(document))
        return version

    @override
    async def read_request(self) -> Mapping[str, Any] | None:
        path = self._path.with_name("request.json")
        return dict(json.loads(path.read_text())) if path.exists() else None

    @override
    async def job_exists(self) -> bool:
        return True


class NoAgents(Agents):
    @override
    async def load(self) -> ServerLoad | None:
        return None

    @override
    async def sessions(self) -> frozenset[str]:
        return frozenset()

    @override
    async def flush(self, sessions: Collection[str]) -> int:
        return 0


async def main(folder: Path, dashboard: str) -> None:
    """`folder` holds job.json and perhaps request.json, and gets progress.json and the marks."""
    driver = Path(__file__).with_name("tiny_driver.py")
    async with httpx.AsyncClient(
        base_url=dashboard, timeout=5, trust_env=False, headers=ray_headers(os.environ)
    ) as client:
        world = World(
            ray=RayApi(client),
            cluster=FileCluster(folder / "progress.json"),
            marks=Marks(folder / "marks"),
            agents=NoAgents(),
            now=time.time,
            sleep=asyncio.sleep,
            say=lambda line: print(line, flush=True),  # noqa: T201 - a process of its own
        )
        supervisor = Supervisor(read_job(folder / "job.json"), 1, world, by_command(f"{sys.executable} {driver}"))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, supervisor.leave)
        await supervisor.live()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))

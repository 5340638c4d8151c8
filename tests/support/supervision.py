"""A world for the supervisor in which time passes only when it sleeps, and things happen at set times."""

import asyncio
import heapq
import itertools
import json
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, override

from harborrl_trainer.job import JobDocument
from harborrl_trainer.layout import IncarnationLayout, RunLayout
from harborrl_trainer.supervisor.agents import Agents, FlushFailedError, ServerLoad
from harborrl_trainer.supervisor.cluster import Cluster, ClusterUnavailableError, ConflictError, Stored
from harborrl_trainer.supervisor.ending import Marks
from harborrl_trainer.supervisor.ray_api import RayApi
from harborrl_trainer.supervisor.sidecar import Supervisor, World
from support import jobs
from support.fake_ray import FakeRay

EPOCH = 1_767_225_600.0
"""2026-01-01T00:00:00Z, when every test begins."""


class Clock:
    """Seconds since the epoch that move by sleeping alone; what was planned for a time happens on the way past it."""

    def __init__(self) -> None:
        self.seconds = EPOCH
        self._order = itertools.count()
        self._plans: list[tuple[float, int, Callable[[], object]]] = []

    def now(self) -> float:
        return self.seconds

    @property
    def elapsed(self) -> float:
        return self.seconds - EPOCH

    def at(self, elapsed: float, happen: Callable[[], object]) -> None:
        heapq.heappush(self._plans, (EPOCH + elapsed, next(self._order), happen))

    async def sleep(self, seconds: float) -> None:
        until = self.seconds + seconds
        while self._plans and self._plans[0][0] <= until:
            self.seconds, _, happen = heapq.heappop(self._plans)
            happen()
        self.seconds = until
        await asyncio.sleep(0)


@dataclass
class FakeCluster(Cluster):
    """One ConfigMap with versions, as the API server keeps it."""

    clock: Clock
    exists: bool = True
    down: bool = False
    document: Mapping[str, Any] | None = None
    request: Mapping[str, Any] | None = None
    """What the operator asks."""
    version: int = 1
    writes: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    """Elapsed seconds and document of each write."""
    questions: int = 0
    """How often somebody asked whether the job exists."""

    @override
    async def read_progress(self) -> Stored:
        self._reach()
        return Stored(self.document, str(self.version))

    @override
    async def write_progress(self, document: Mapping[str, Any], version: str) -> str:
        self._reach()
        if version != str(self.version):
            raise ConflictError("HTTP 409 Conflict")
        stored = json.loads(json.dumps(document))
        self.put(stored)
        self.writes.append((self.clock.elapsed, stored))
        return str(self.version)

    @override
    async def read_request(self) -> Mapping[str, Any] | None:
        self._reach()
        return self.request

    @override
    async def job_exists(self) -> bool:
        self.questions += 1
        self._reach()
        return self.exists

    def put(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self.version += 1

    def _reach(self) -> None:
        if self.down:
            raise ClusterUnavailableError("HTTP 503 Service Unavailable")

    @property
    def states(self) -> list[str]:
        return [document["driver"]["state"] for _, document in self.writes]

    @property
    def last(self) -> dict[str, Any]:
        return self.writes[-1][1]


@dataclass
class FakeAgents(Agents):
    """An agent server with one session server in the driver."""

    load_now: ServerLoad | None
    names: frozenset[str] = frozenset({"session-1"})
    down: bool = False
    flushes: list[frozenset[str]] = field(default_factory=list)

    @override
    async def load(self) -> ServerLoad | None:
        return self.load_now

    @override
    async def sessions(self) -> frozenset[str]:
        return self.names

    @override
    async def flush(self, sessions: Collection[str]) -> int:
        if self.down:
            raise FlushFailedError("http://agents/flush: ConnectError")
        self.flushes.append(frozenset(sessions))
        return 3


class Pod:
    """The life of one head pod: Ray, marks and volumes; supervisors may come and go in it."""

    def __init__(self, volumes: Path, marks: str = "pod", attempt: int = 1, clock: Clock | None = None) -> None:
        self.job: JobDocument = jobs.job(volumes)
        self.run = RunLayout.of(self.job)
        self.attempt = attempt
        self.clock = clock or Clock()
        self.ray = FakeRay()
        self.cluster = FakeCluster(self.clock)
        self.marks = Marks(volumes / marks)
        self.marks.folder.mkdir(exist_ok=True)
        self.agents = FakeAgents(ServerLoad(8, 3))
        self.said: list[str] = []

    def mine(self, incarnation: int = 1) -> IncarnationLayout:
        return self.run.incarnation(self.attempt, incarnation)

    def terminate(self) -> None:
        """What the preStop hook does."""
        (self.marks.folder / "terminating").touch()

    def end_driver(self, exit_code: int, logs: str = "") -> None:
        self.ray.finish(self.ray.submissions[-1], exit_code, logs)

    def run_driver(self) -> None:
        self.ray.jobs[self.ray.submissions[-1]].status = "RUNNING"

    def dump(self, path: Path) -> None:
        """A dump file whose modification time is the test's now."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"not to be opened")
        os.utime(path, (self.clock.seconds, self.clock.seconds))

    async def supervise(self, seconds: float) -> None:
        """One supervisor, from now until SIGTERM after `seconds`."""
        async with self.ray.client() as client:
            world = World(
                ray=RayApi(client),
                cluster=self.cluster,
                marks=self.marks,
                agents=self.agents,
                now=self.clock.now,
                sleep=self.clock.sleep,
                say=self.said.append,
            )
            supervisor = Supervisor(self.job, self.attempt, world)
            self.clock.at(self.clock.elapsed + seconds, supervisor.leave)
            await supervisor.live()

"""Many trials at once on the real cluster while sandboxes, servers, sessions and the API server fail."""

import asyncio
import contextlib
import random
import time
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import httpx

from harborrl_agent_server.contract import RunRequest
from harborrl_agent_server.sandboxes.cluster import Cluster, KubeUnreachableError
from harborrl_agent_server.sessions import run_id
from support.agent_tasks import write_task
from support.chaos_faults import Sandboxes, api_server_away, left_in
from support.chaos_model import VERIFY, ChaosModel, Played
from support.chaos_server import Lives
from support.raw_http import serving

ATTEMPTS = 12
"""Sessions that one trial may cost. The later half of them fails only by what befalls server and cluster."""

CLIENTS = 64
"""Connections at once: as many as Miles' own client holds."""

ANSWER_SECONDS = 300.0
"""Within which each request ends: the wait for a slot and one trial, on a machine that does other things."""

AWAY_SECONDS = 30.0

TASKS = {"count-steps": "", "count-steps-apart": '\nnetwork_mode = "no-network"'}
"""With what each says of its network: each sandbox of the second has a NetworkPolicy of its own."""


class End(StrEnum):
    """How a request ended for its client."""

    ANSWERED = "answered"
    CLOSED = "closed"
    """The connection broke before an answer was whole."""


@dataclass(frozen=True)
class Asked:
    """One request that a server took."""

    played: Played
    life: int
    """Of the server."""
    end: End
    answer: dict[str, Any] = field(default_factory=dict)

    @property
    def is_graded(self) -> bool:
        return bool(self.answer.get("eval_report"))

    @property
    def status(self) -> str:
        return str(self.answer.get("exit_status", ""))

    @property
    def run(self) -> str:
        """The server's name for it, which its trial's directory ends in."""
        return str(self.answer.get("trial_name") or "").rpartition("-")[2]


@dataclass
class Record:
    """What happened."""

    asked: list[Asked] = field(default_factory=list)
    graded: set[int] = field(default_factory=set)
    outages: int = 0
    seconds: float = 0.0
    last_health: dict[str, Any] = field(default_factory=dict)
    exit_code: int | None = None
    left: list[str] = field(default_factory=list)
    """Objects in the sandbox namespace when the last server had left."""


@dataclass
class Chaos:
    """The trials, and the faults: each when so many were graded, so that a slow machine is hurt as a fast one is."""

    seed: int
    trials: int
    lives: Lives
    sandboxes: Sandboxes
    record: Record = field(default_factory=Record)
    model: ChaosModel = field(init=False)
    _model_url: str = ""
    _clients: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CLIENTS))
    _progress: asyncio.Condition = field(default_factory=asyncio.Condition)

    def __post_init__(self) -> None:
        self.model = ChaosModel(self.seed, "0" * 32, self._delete_sandbox_of)

    async def play(self) -> None:
        """To the end of the last server."""
        begun = time.monotonic()
        async with serving(self.model.handle) as port:
            self._model_url = f"http://127.0.0.1:{port}"
            await self.lives.start()
            async with asyncio.TaskGroup() as group:
                faults = [group.create_task(fault) for fault in (self._kills(), self._outage(), self._deletions())]
                await asyncio.gather(*(group.create_task(self._trial(number)) for number in range(self.trials)))
                for fault in faults:
                    fault.cancel()
        self.record.last_health = await self.lives.settled(90)
        self.record.exit_code = await self.lives.stop()
        self.record.left = await left_in(self.sandboxes.cluster, self.sandboxes.namespace)
        self.record.seconds = time.monotonic() - begun

    async def _trial(self, number: int) -> None:
        """Until it is graded, each try in a session of its own, as trainers do."""
        for attempt in range(ATTEMPTS):
            async with self._clients:
                asked = await self._ask(self.model.session(number, attempt, ATTEMPTS))
            self.record.asked.append(asked)
            async with self._progress:
                self.record.graded |= {number} if asked.is_graded else set()
                self._progress.notify_all()
            if asked.is_graded:
                return

    async def _ask(self, played: Played) -> Asked:
        """A server that takes no connection has taken no request: it is asked again when it is up."""
        while True:
            await self.lives.up.wait()
            life = self.lives.number
            try:
                async with (
                    asyncio.timeout(ANSWER_SECONDS),
                    httpx.AsyncClient(trust_env=False, timeout=ANSWER_SECONDS) as client,
                ):
                    response = await client.post(f"{self.lives.url}/run", json=self.body(played))
                    response.raise_for_status()
                    return Asked(played, life, End.ANSWERED, response.json())
            except httpx.ConnectError:
                continue
            except httpx.TransportError:
                return Asked(played, life, End.CLOSED)

    def body(self, played: Played) -> dict[str, Any]:
        return {
            "instance_id": list(TASKS)[played.steps % len(TASKS)],
            "base_url": f"{self._model_url}/sessions/{played.name}/v1",
            "session_server_id": self._model_url.removeprefix("http://"),
            "session_server_instance_id": self.model.instance,
        }

    async def _graded(self, share: float) -> None:
        async with self._progress:
            await self._progress.wait_for(lambda: len(self.record.graded) >= share * self.trials)

    async def _kills(self) -> None:
        for share in (0.2, 0.75):
            await self._graded(share)
            await self.lives.kill()
            await self.lives.start()

    async def _outage(self) -> None:
        await self._graded(0.45)
        async with api_server_away():
            await asyncio.sleep(AWAY_SECONDS)
        self.record.outages += 1

    async def _deletions(self) -> None:
        """Of sandboxes in whatever phase they are."""
        draw = random.Random(self.seed)  # noqa: S311 - to be drawn again
        for number in range(self.trials // 10):
            await self._graded(number * 10 / self.trials)
            with contextlib.suppress(KubeUnreachableError):
                if names := await self.sandboxes.names():
                    await self.sandboxes.delete(draw.choice(names))

    async def _delete_sandbox_of(self, session: str) -> None:
        request = RunRequest.model_validate(self.body(self.model.sessions[session]))
        await self.sandboxes.delete_of(run_id(request))


async def played(*, seed: int, trials: int, slots: int, folder: Path, namespace: str, image: str) -> Chaos:
    """The whole run; nothing of it is left on this machine or, when it went well, on the cluster."""
    for name, network in TASKS.items():
        write_task(folder / "tasks", name, verify=VERIFY, environment=f'workdir = "/app"{network}')
    cluster = await Cluster.connect()
    lives = Lives(folder, namespace, image, slots)
    chaos = Chaos(seed, trials, lives, Sandboxes(cluster, namespace))
    try:
        await chaos.play()
    finally:
        await lives.kill()
        await cluster.close()
    return chaos

"""Pods that are created for their trials, with patience for a busy API server and a full quota."""

import asyncio
from collections.abc import Callable
from typing import Any

from harborrl_agent_server.bounded import keep
from harborrl_agent_server.errors import SandboxStartError
from harborrl_agent_server.sandboxes.allocating import NOT_ASKED, Ground, Lease, Patience, Pod, until_ready, with_events
from harborrl_agent_server.sandboxes.cluster import Cluster, KubeError, KubeUnreachableError
from harborrl_agent_server.sandboxes.pods import Verdict, judge
from harborrl_agent_server.sandboxes.refusals import refusal_of
from harborrl_agent_server.warmth import Warmth

CREATE_PAUSE_SECONDS = 1.0


def _nobody() -> None:
    """Nobody can make room."""


class Creation:
    """An object that is created once, with patience, and deleted whatever became of its creation."""

    def __init__(self, cluster: Cluster, path: str, manifest: dict[str, Any], patience: Patience) -> None:
        self.name: str = manifest["metadata"]["name"]
        self._cluster = cluster
        self._path = path
        self._manifest = manifest
        self._patience = patience
        self._task: asyncio.Task[dict[str, Any]] | None = None
        self._abandoned = False

    async def made(self, full: Callable[[], None] = _nobody) -> dict[str, Any]:
        """The object as the API server took it; raises `SandboxStartError`. `full` is called when a quota is."""
        self._task = keep(self._create(full))
        return await asyncio.shield(self._task)

    async def settled(self) -> tuple[bool, str | None]:
        """Whether it was ever asked for, and its uid where that is known; no further request for it is begun."""
        self._abandoned = True
        if self._task is None:
            return False, None
        await asyncio.wait({self._task})
        failed = self._task.cancelled() or self._task.exception() is not None
        return True, None if failed else self._task.result()["metadata"]["uid"]

    async def _create(self, full: Callable[[], None]) -> dict[str, Any]:
        """Busy answers and full quotas are asked again, within the start budget and the quota grace."""
        loop = asyncio.get_running_loop()
        patience = loop.time() + self._patience.quota_s
        while True:
            try:
                return await self._cluster.request("POST", self._path, body=self._manifest)
            except KubeUnreachableError as error:
                if loop.time() > patience:
                    raise SandboxStartError("ApiUnreachable", str(error)) from error
            except KubeError as error:
                if error.is_there:
                    return await self._cluster.request("GET", f"{self._path}/{self.name}")
                refusal = refusal_of(error)
                if refusal.reason == "QuotaExceeded":
                    full()
                if not refusal.passes or loop.time() > patience:
                    raise SandboxStartError(refusal.reason, f"{error.message or error}; {refusal.advice}") from error
            if self._abandoned:
                raise SandboxStartError("Cancelled", "the trial ended before its pod was created")
            await asyncio.sleep(CREATE_PAUSE_SECONDS)


class ColdLease:
    """A pod that is created for its trial."""

    def __init__(
        self,
        ground: Ground,
        manifest: dict[str, Any],
        *,
        patience: Patience | None = None,
        full: Callable[[], None] = _nobody,
    ) -> None:
        self.verdict = NOT_ASKED
        self._ground = ground
        self._patience = patience or ground.patience
        self._creation = Creation(ground.cluster, ground.pods_path, manifest, self._patience)
        self.view = ground.watch.expect(self._creation.name)
        self._full = full

    async def ready(self) -> Pod:
        made = await self._creation.made(self._full)
        await until_ready(lambda: self.view, self._judge, self.told, self._patience.pull_s)
        return Pod(self._creation.name, made["metadata"]["uid"], self.view)

    def _judge(self) -> Verdict:
        if self.view.pod:
            self.verdict = judge(self.view.pod, gone=self.view.gone)
        if self.verdict.reason == "Unschedulable":
            self._full()
        return self.verdict

    async def told(self) -> Verdict:
        return await with_events(self._ground, self._creation.name, self.verdict)

    async def give_back(self) -> bool:
        asked, uid = await self._creation.settled()
        if asked:
            return await self._ground.delete_pod(self._creation.name, uid)
        self._ground.watch.forget(self._creation.name)
        return True


class ColdAllocator:
    """Creates a pod for each trial."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._starts = 0

    async def open(self) -> None:
        """Nothing to check."""

    async def cool(self) -> None:
        """It keeps none."""

    async def close(self) -> None:
        """It keeps none."""

    def ask(self, manifest: dict[str, Any], prepare: str) -> Lease:  # noqa: ARG002 - it comes unprepared
        self._starts += 1
        return ColdLease(self._ground, manifest)

    def warmth(self) -> Warmth:
        return Warmth(cold_starts=self._starts)

"""Getting a pod: created with patience, then waited for until its container runs."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

from harborrl_agent_server.bounded import keep
from harborrl_agent_server.errors import SandboxStartError
from harborrl_agent_server.sandboxes.cluster import Cluster, KubeError, KubeUnreachableError
from harborrl_agent_server.sandboxes.pods import State, Verdict, judge
from harborrl_agent_server.sandboxes.reasons import advice, told
from harborrl_agent_server.sandboxes.refusals import refusal_of
from harborrl_agent_server.sandboxes.watch import PodView

LOG = logging.getLogger(__name__)

CREATE_PAUSE_SECONDS = 1.0

EVENTS_SECONDS = 5.0
"""For the events of a pod that did not start: its trial has failed already."""


@dataclass(frozen=True)
class Patience:
    pull_s: float = 45.0
    """How long a failing image pull may be retried: registries hiccup, wrong names do not heal."""
    quota_s: float = 30.0
    """How long a full quota may be retried: pods that are being deleted still count."""


class Allocation:
    """One pod from the request for it on; outlives a trial that is cut off, for whoever has to remove the pod."""

    def __init__(
        self, cluster: Cluster, pods_path: str, view: PodView, manifest: dict[str, Any], patience: Patience
    ) -> None:
        self.name: str = manifest["metadata"]["name"]
        self.view = view
        self._cluster = cluster
        self._pods_path = pods_path
        self._manifest = manifest
        self._patience = patience
        self._creation: asyncio.Task[dict[str, Any]] | None = None
        self._abandoned = False

    async def ready(self, budget_s: float) -> None:
        """Returns when the container runs; raises `SandboxStartError` with the newest reason otherwise."""
        seen = [Verdict(State.PENDING, "NotCreated", "the API server has not taken the pod yet")]
        try:
            async with asyncio.timeout(budget_s):
                self._creation = keep(self._create())
                await asyncio.shield(self._creation)
                await self._until_ready(seen)
        except TimeoutError as error:
            last = await self._told(seen[-1])
            raise SandboxStartError(
                last.reason, f"not ready within {budget_s:.0f} s: {last.message or 'no reason given'}; {advice(last)}"
            ) from error

    def abandon(self) -> None:
        """No further request for the pod is begun; one in flight goes on to its answer."""
        self._abandoned = True

    async def settled(self) -> str | None:
        """The pod's uid once its creation has an answer, which a cancelled request gets too. None: not known."""
        if self._creation is None:
            return None
        await asyncio.wait({self._creation})
        failed = self._creation.cancelled() or self._creation.exception() is not None
        return None if failed else self._creation.result()["metadata"]["uid"]

    async def _create(self) -> dict[str, Any]:
        """Create the pod; busy answers and full quotas are asked again, within the start budget and the quota grace."""
        loop = asyncio.get_running_loop()
        patience = loop.time() + self._patience.quota_s
        while True:
            try:
                return await self._cluster.request("POST", self._pods_path, body=self._manifest)
            except KubeUnreachableError as error:
                if loop.time() > patience:
                    raise SandboxStartError("ApiUnreachable", str(error)) from error
            except KubeError as error:
                if error.status == 409:
                    return await self._cluster.request("GET", f"{self._pods_path}/{self.name}")
                refusal = refusal_of(error)
                if not refusal.passes or loop.time() > patience:
                    raise SandboxStartError(refusal.reason, f"{error.message or error}; {refusal.advice}") from error
            if self._abandoned:
                raise SandboxStartError("Cancelled", "the trial ended before its pod was created")
            await asyncio.sleep(CREATE_PAUSE_SECONDS)

    async def _told(self, verdict: Verdict) -> Verdict:
        """With what the events say: why a volume, a network or a secret was not to be had is nowhere else."""
        path = f"{self._pods_path.rpartition('/')[0]}/events"
        query = [("fieldSelector", f"involvedObject.kind=Pod,involvedObject.name={self.name}")]
        try:
            found = await self._cluster.request("GET", path, query=query, timeout_s=EVENTS_SECONDS)
        except (KubeError, KubeUnreachableError) as error:
            LOG.warning("events of sandbox %s cannot be read: %s", self.name, error)
            return verdict
        return told(verdict, found["items"])

    async def _until_ready(self, seen: list[Verdict]) -> None:
        """Returns when the container runs; `seen` ends with the newest verdict, for whoever cuts the wait short."""
        loop = asyncio.get_running_loop()
        patience: float | None = None
        while True:
            change = asyncio.ensure_future(self.view.change())
            try:
                seen.append(judge(self.view.pod, gone=self.view.gone) if self.view.pod else seen[-1])
                last = seen[-1]
                if last.state is State.READY:
                    return
                if last.state is State.TROUBLED and patience is None:
                    patience = loop.time() + self._patience.pull_s
                if last.state is State.FAILED or (patience is not None and loop.time() >= patience):
                    last = await self._told(last)
                    raise SandboxStartError(last.reason, f"{last.message}; {advice(last)}")
                await asyncio.wait({change}, timeout=None if patience is None else patience - loop.time())
            finally:
                change.cancel()

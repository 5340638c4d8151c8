"""How a trial gets its pod and gives it back: the seam, and the way that creates one."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from harborrl_agent_server.bounded import keep
from harborrl_agent_server.errors import SandboxStartError
from harborrl_agent_server.sandboxes.cluster import Cluster, KubeError, KubeUnreachableError
from harborrl_agent_server.sandboxes.pod_exec import PodExec
from harborrl_agent_server.sandboxes.pods import State, Verdict, judge
from harborrl_agent_server.sandboxes.reasons import advice, told
from harborrl_agent_server.sandboxes.refusals import refusal_of
from harborrl_agent_server.sandboxes.watch import PodView, PodWatch
from harborrl_agent_server.warmth import Warmth

LOG = logging.getLogger(__name__)

CREATE_PAUSE_SECONDS = 1.0

EVENTS_SECONDS = 5.0
"""For the events of a pod that did not start: its trial has failed already."""

NOT_ASKED = Verdict(State.PENDING, "NotCreated", "the API server has not taken the pod yet")


@dataclass(frozen=True)
class Patience:
    pull_s: float = 45.0
    """How long a failing image pull may be retried: registries hiccup, wrong names do not heal."""
    quota_s: float = 30.0
    """How long a full quota may be retried: pods that are being deleted still count."""


@dataclass(frozen=True)
class Pod:
    """A pod whose container runs, as its trial uses it."""

    name: str
    uid: str
    view: PodView
    container: str = "main"
    prepared: str = ""
    """The shell text that has made its folders already; empty: none has run."""


class Lease(Protocol):
    """One trial's hold on a pod, from the request for it to its removal; outlives a trial that is cut off."""

    async def told(self) -> Verdict:
        """Why it is not ready, as far as can be learned."""

    async def ready(self) -> Pod:
        """Returns when the container runs; raises `SandboxStartError`. Called once, and may be cancelled."""

    async def give_back(self) -> bool:
        """Remove the pod; whether the API server took that. A request in flight is awaited: it may have made a pod."""


class Allocator(Protocol):
    """Where the pods of trials come from."""

    async def open(self) -> None:
        """Check what can be checked; raises `StartupError`."""

    async def close(self) -> None:
        """Remove what no trial holds."""

    def ask(self, manifest: dict[str, Any], prepare: str) -> Lease:
        """`manifest`: the pod as it would be created for the trial. `prepare`: the shell text that it needs run."""

    def warmth(self) -> Warmth:
        """What was started how, and what waits."""


class Ground(Protocol):
    """What allocators share."""

    @property
    def cluster(self) -> Cluster: ...
    @property
    def exec(self) -> PodExec: ...
    @property
    def watch(self) -> PodWatch: ...
    @property
    def pods_path(self) -> str: ...
    @property
    def patience(self) -> Patience: ...

    async def delete_pod(self, name: str, uid: str | None) -> bool: ...


async def obtained(lease: Lease, budget_s: float) -> Pod:
    """The lease's pod within the time; raises `SandboxStartError` with the newest reason otherwise."""
    try:
        async with asyncio.timeout(budget_s):
            return await lease.ready()
    except TimeoutError as error:
        last = await lease.told()
        raise SandboxStartError(
            last.reason, f"not ready within {budget_s:.0f} s: {last.message or 'no reason given'}; {advice(last)}"
        ) from error


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
                if error.status == 409:
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


async def with_events(ground: Ground, pod: str, verdict: Verdict) -> Verdict:
    """With what the events say: why a volume, a network or a secret was not to be had is nowhere else."""
    path = f"{ground.pods_path.rpartition('/')[0]}/events"
    query = [("fieldSelector", f"involvedObject.kind=Pod,involvedObject.name={pod}")]
    try:
        found = await ground.cluster.request("GET", path, query=query, timeout_s=EVENTS_SECONDS)
    except (KubeError, KubeUnreachableError) as error:
        LOG.warning("events of sandbox %s cannot be read: %s", pod, error)
        return verdict
    return told(verdict, found["items"])


async def until_ready(
    view: Callable[[], PodView],
    look: Callable[[], Verdict],
    tell: Callable[[], Awaitable[Verdict]],
    pull_s: float,
) -> None:
    """Returns when `look` finds it ready; looks again at each change of the view, which may be another one by then."""
    loop = asyncio.get_running_loop()
    patience: float | None = None
    while True:
        change = asyncio.ensure_future(view().change())
        try:
            last = look()
            if last.state is State.READY:
                return
            if last.state is State.TROUBLED and patience is None:
                patience = loop.time() + pull_s
            if last.state is State.FAILED or (patience is not None and loop.time() >= patience):
                last = await tell()
                raise SandboxStartError(last.reason, f"{last.message}; {advice(last)}")
            await asyncio.wait({change}, timeout=None if patience is None else patience - loop.time())
        finally:
            change.cancel()


class ColdAllocator:
    """Creates a pod for each trial."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._starts = 0

    async def open(self) -> None:
        """Nothing to check."""

    async def close(self) -> None:
        """It keeps none."""

    def ask(self, manifest: dict[str, Any], prepare: str) -> Lease:  # noqa: ARG002 - it comes unprepared
        self._starts += 1
        return ColdLease(self._ground, manifest)

    def warmth(self) -> Warmth:
        return Warmth(cold_starts=self._starts)

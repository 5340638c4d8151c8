"""How a trial gets its pod and gives it back: the seam between sandboxes and where their pods come from."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from harborrl_agent_server.errors import SandboxStartError
from harborrl_agent_server.sandboxes.cluster import Cluster, KubeError, KubeUnreachableError
from harborrl_agent_server.sandboxes.pod_exec import PodExec
from harborrl_agent_server.sandboxes.pods import State, Verdict
from harborrl_agent_server.sandboxes.reasons import advice, told
from harborrl_agent_server.sandboxes.watch import PodView, PodWatch
from harborrl_agent_server.warmth import Warmth

LOG = logging.getLogger(__name__)

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

    async def cool(self) -> None:
        """Remove what no trial holds, and keep nothing ready any more."""

    async def close(self) -> None:
        """As `cool`; no trial asks or holds anything any more."""

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

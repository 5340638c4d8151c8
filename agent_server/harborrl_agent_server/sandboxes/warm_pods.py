"""One pod of the warm pool: how it is made ready for any trial, and how a trial takes it."""

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Any

from harborrl_agent_server.errors import SandboxStartError, SandboxTransportError
from harborrl_agent_server.sandboxes import commands
from harborrl_agent_server.sandboxes.allocating import Ground, Pod
from harborrl_agent_server.sandboxes.cluster import KubeError, KubeUnreachableError
from harborrl_agent_server.sandboxes.creating import ColdLease
from harborrl_agent_server.sandboxes.pods import State, judge
from harborrl_agent_server.sandboxes.streams import Capture
from harborrl_agent_server.sandboxes.warm_plan import Stage

PREPARE_SECONDS = 10.0

TAKE_ATTEMPTS = 3


@dataclass
class Recipe:
    """How pods of one key are made."""

    manifest: dict[str, Any]
    prepare: str
    used: float
    paused_until: float = float("-inf")


@dataclass
class Kept:
    """One pod of the pool."""

    name: str
    key: str
    lease: ColdLease
    born: float
    stage: Stage = Stage.STARTING
    pod: Pod | None = None
    raising: asyncio.Task[None] | None = field(default=None, repr=False)


async def prepared(ground: Ground, pod: Pod, prepare: str) -> Pod:
    said = Capture(4096)
    argv = [commands.SHELL, "-c", prepare]
    try:
        async with asyncio.timeout(PREPARE_SECONDS):
            code = await ground.exec.stream(pod, argv, stdin=None, stdout=said, stderr=said)
    except TimeoutError as error:
        raise SandboxTransportError(f"no answer from {pod.name} within {PREPARE_SECONDS:.0f} s") from error
    if code:
        raise SandboxStartError("ImageUnusable", f"{said.text().strip()}; {commands.NEEDS}")
    return Pod(pod.name, pod.uid, pod.view, pod.container, prepared=prepare)


async def taken(ground: Ground, pod: Pod, labels: dict[str, str | None]) -> bool:
    """Take it on condition that it is what we last saw: a pod that somebody deletes meanwhile is not taken."""
    path = f"{ground.pods_path}/{pod.name}"
    seen = pod.view.pod or {}
    for _ in range(TAKE_ATTEMPTS):
        if pod.view.gone or judge(seen).state is not State.READY:
            return False
        meta = {"uid": pod.uid, "resourceVersion": seen["metadata"]["resourceVersion"], "labels": labels}
        try:
            await ground.cluster.request("PATCH", path, body={"metadata": meta})
        except KubeUnreachableError:
            return False
        except KubeError as error:
            if error.status != 409:
                return False
            with contextlib.suppress(KubeError, KubeUnreachableError):
                seen = await ground.cluster.request("GET", path)
        else:
            return True
    return False

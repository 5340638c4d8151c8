"""Two pods that differ in their NetworkPolicy alone: made, tried from inside, and removed again."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, Protocol

from harborrl_agent_server.bounded import finish
from harborrl_agent_server.errors import SandboxLostError, SandboxStartError, SandboxTransportError
from harborrl_agent_server.sandboxes import commands, network
from harborrl_agent_server.sandboxes.allocating import Allocation
from harborrl_agent_server.sandboxes.cluster_network import ClusterNetwork
from harborrl_agent_server.sandboxes.pod_exec import PodExec
from harborrl_agent_server.sandboxes.policies import OwnPolicy
from harborrl_agent_server.sandboxes.probe import EVERYWHERE, NO_TOOL, TRIED, TRY, Finding, Proof, judged
from harborrl_agent_server.sandboxes.streams import Capture

RESOURCES = {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}}
"""Of each pod."""

START_SECONDS = 120.0
"""For both pods: an image may have to come first."""

FOLLOW_SECONDS = 30.0
"""How long the network plugin may take to let the one pod out, and then to cut off the other."""

PAUSE_SECONDS = 0.5
REMOVE_SECONDS = 20.0

Reach = Callable[[], Awaitable[str | None]]
"""One try: the address that answered."""

BLOCKED_TIMES = 2
"""Tries in a row that must fail: one may be lost by itself."""


class Ground(Protocol):
    """What a probe needs of the server."""

    @property
    def exec(self) -> PodExec: ...
    @property
    def network(self) -> ClusterNetwork: ...
    def allocation(self, manifest: dict[str, Any]) -> Allocation: ...
    def probe_pod(self, name: str, labels: dict[str, str], image: str) -> dict[str, Any]: ...
    async def delete_pod(self, name: str, uid: str | None) -> bool: ...


class NoToolError(Exception):
    """The image has nothing that connects."""


async def probe(ground: Ground, name: str, image: str, *, follow_s: float = FOLLOW_SECONDS) -> Finding:
    """`name`: what both pods' names begin with, not used before."""
    free, cut = f"{name}-free", f"{name}-cut"
    policy = ground.network.own_policy(free)
    allocations = [
        ground.allocation(ground.probe_pod(free, {network.LABEL: "probe", network.SANDBOX: free}, image)),
        ground.allocation(ground.probe_pod(cut, dict(network.NO_NETWORK), image)),
    ]
    try:
        await policy.write(ground.network.own_policy_manifest(free, EVERYWHERE))
        await asyncio.gather(*(each.ready(START_SECONDS) for each in allocations))
        reach = partial(reached, ground)
        control = await until_open(partial(reach, allocations[0]), follow_s)
        through = await until_cut(partial(reach, allocations[1]), follow_s) if control else None
        return judged(control=control, restricted=through, image=image)
    except NoToolError:
        return Finding(Proof.UNPROVEN, f"{image} has none of nc, bash, python3 and perl to try a connection with")
    except (SandboxStartError, SandboxLostError, SandboxTransportError) as error:
        return Finding(Proof.UNPROVEN, f"it could not be tried: {error}")
    finally:
        await finish(_remove(ground, allocations, policy), REMOVE_SECONDS)


async def _remove(ground: Ground, allocations: list[Allocation], policy: OwnPolicy) -> None:
    for each in allocations:
        each.abandon()
    await asyncio.gather(*(_delete(ground, each) for each in allocations), policy.remove())


async def _delete(ground: Ground, allocation: Allocation) -> None:
    await ground.delete_pod(allocation.name, await allocation.settled())


async def reached(ground: Ground, allocation: Allocation) -> str | None:
    """The first address that a pod connects to, once tried."""
    out = Capture(4096)
    argv = [commands.SHELL, "-c", TRY]
    code = await ground.exec.stream(
        allocation.name, allocation.view, argv, stdin=None, stdout=out, stderr=Capture(4096)
    )
    if code == NO_TOOL:
        raise NoToolError
    if code not in TRIED:
        raise SandboxTransportError(f"a connection was tried with exit code {code}")
    return out.text().strip() if code == 0 else None


async def until_open(reach: Reach, follow_s: float) -> str | None:
    """The first address reached within the limit."""
    async for found in tries(reach, follow_s):
        if found is not None:
            return found
    return None


async def until_cut(reach: Reach, follow_s: float) -> str | None:
    """None when tries fail and go on failing within the limit, else what was reached last."""
    blocked = 0
    last = None
    async for found in tries(reach, follow_s):
        blocked, last = (blocked + 1, last) if found is None else (0, found)
        if blocked >= BLOCKED_TIMES:
            return None
    return last


async def tries(reach: Reach, follow_s: float) -> AsyncIterator[str | None]:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + follow_s
    while True:
        yield await reach()
        if loop.time() > deadline:
            return
        await asyncio.sleep(PAUSE_SECONDS)

"""Two pods that differ in their NetworkPolicy alone: made, tried from inside, and removed again."""

import asyncio
from functools import partial
from typing import Any, Protocol

from harborrl_agent_server.bounded import finish
from harborrl_agent_server.errors import SandboxLostError, SandboxStartError, SandboxTransportError
from harborrl_agent_server.sandboxes import network
from harborrl_agent_server.sandboxes.allocating import Allocation
from harborrl_agent_server.sandboxes.cluster_network import ClusterNetwork
from harborrl_agent_server.sandboxes.pod_exec import PodExec
from harborrl_agent_server.sandboxes.policies import OwnPolicy
from harborrl_agent_server.sandboxes.probe import EVERYWHERE, Finding, Proof, judged
from harborrl_agent_server.sandboxes.tries import FOLLOW_SECONDS, NoToolError, reached, until_cut, until_open

RESOURCES = {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}}
"""Of each pod."""

START_SECONDS = 120.0
"""For both pods: an image may have to come first."""

REMOVE_SECONDS = 20.0


class Ground(Protocol):
    """What a probe needs of the server."""

    @property
    def exec(self) -> PodExec: ...
    @property
    def network(self) -> ClusterNetwork: ...
    def allocation(self, manifest: dict[str, Any]) -> Allocation: ...
    def probe_pod(self, name: str, labels: dict[str, str], image: str) -> dict[str, Any]: ...
    async def delete_pod(self, name: str, uid: str | None) -> bool: ...


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
        reach_free, reach_cut = (partial(reached, ground.exec, each.name, each.view) for each in allocations)
        control = await until_open(reach_free, follow_s)
        through = await until_cut(reach_cut, follow_s) if control else None
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

"""Two pods that differ in their NetworkPolicy alone: made, tried from inside, and removed again."""

import asyncio
from functools import partial
from typing import Any, Protocol

from harborrl_agent_server.bounded import finish
from harborrl_agent_server.errors import SandboxLostError, SandboxStartError, SandboxTransportError
from harborrl_agent_server.sandboxes import network
from harborrl_agent_server.sandboxes.allocating import Ground as PodGround
from harborrl_agent_server.sandboxes.allocating import Pod, obtained
from harborrl_agent_server.sandboxes.cluster_network import ClusterNetwork
from harborrl_agent_server.sandboxes.creating import ColdLease
from harborrl_agent_server.sandboxes.policies import OwnPolicy
from harborrl_agent_server.sandboxes.probe import EVERYWHERE, Finding, Proof, judged
from harborrl_agent_server.sandboxes.tries import FOLLOW_SECONDS, NoToolError, reached, until_cut, until_open

RESOURCES = {"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}}
"""Of each pod."""

START_SECONDS = 120.0
"""For both pods: an image may have to come first."""

REMOVE_SECONDS = 20.0


class Ground(PodGround, Protocol):
    """What a probe needs of the server."""

    @property
    def network(self) -> ClusterNetwork: ...
    def probe_pod(self, name: str, labels: dict[str, str], image: str) -> dict[str, Any]: ...


async def probe(ground: Ground, name: str, image: str, *, follow_s: float = FOLLOW_SECONDS) -> Finding:
    """`name`: what both pods' names begin with, not used before."""
    free, cut = f"{name}-free", f"{name}-cut"
    policy = ground.network.own_policy(free)
    leases = [
        ColdLease(ground, ground.probe_pod(free, {network.LABEL: "probe", network.SANDBOX: free}, image)),
        ColdLease(ground, ground.probe_pod(cut, dict(network.NO_NETWORK), image)),
    ]
    try:
        await policy.write(ground.network.own_policy_manifest(free, EVERYWHERE))
        pods: list[Pod] = await asyncio.gather(*(obtained(each, START_SECONDS) for each in leases))
        reach_free, reach_cut = (partial(reached, ground.exec, pod) for pod in pods)
        control = await until_open(reach_free, follow_s)
        through = await until_cut(reach_cut, follow_s) if control else None
        return judged(control=control, restricted=through, image=image)
    except NoToolError:
        return Finding(Proof.UNPROVEN, f"{image} has none of nc, bash, python3 and perl to try a connection with")
    except (SandboxStartError, SandboxLostError, SandboxTransportError) as error:
        return Finding(Proof.UNPROVEN, f"it could not be tried: {error}")
    finally:
        await finish(_remove(leases, policy), REMOVE_SECONDS)


async def _remove(leases: list[ColdLease], policy: OwnPolicy) -> None:
    await asyncio.gather(*(each.give_back() for each in leases), policy.remove())

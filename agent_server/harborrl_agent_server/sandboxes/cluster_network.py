"""The network of all sandboxes of one server: the policy of those without any, those of single pods, and the proof."""

import logging
from typing import Any

from harborrl_agent_server.errors import SandboxStartError, StartupError
from harborrl_agent_server.sandboxes import network
from harborrl_agent_server.sandboxes.anchors import Anchor
from harborrl_agent_server.sandboxes.cluster import Cluster, KubeError, KubeUnreachableError, created
from harborrl_agent_server.sandboxes.enforcement import Enforcement
from harborrl_agent_server.sandboxes.names import Resolve, resolved
from harborrl_agent_server.sandboxes.policies import PATH, OwnPolicy, removed
from harborrl_agent_server.sandboxes.probe import Finding, Proof
from harborrl_agent_server.sandboxes.tries import FOLLOW_SECONDS

SETTLE_SECONDS = 5.0
"""How long a phase waits at most for its wider network: whether it is there yet cannot always be tried."""

LOG = logging.getLogger(__name__)


class ClusterNetwork:
    """`labels`: of everything that this server makes."""

    def __init__(
        self, cluster: Cluster, namespace: str, labels: dict[str, str], anchor: Anchor, enforcement: Enforcement
    ) -> None:
        self.resolve: Resolve = resolved
        self.follow_s = FOLLOW_SECONDS
        self.settle_s = SETTLE_SECONDS
        self.enforcement = enforcement
        self._cluster = cluster
        self._namespace = namespace
        self._path = PATH.format(namespace=namespace)
        self._labels = labels
        self._anchor = anchor

    async def open(self, selector: str) -> None:
        """Policies of this server's last life go; the one for sandboxes without network is there before the first."""
        try:
            left = await self._cluster.request("GET", self._path, query=[("labelSelector", selector)])
            for policy in left["items"]:
                await removed(self._cluster, f"{self._path}/{policy['metadata']['name']}", policy["metadata"]["uid"])
            await created(self._cluster, self._path, network.no_network_policy())
        except KubeUnreachableError as error:
            raise StartupError(f"the API server does not answer: {error}") from error
        except KubeError as error:
            self.enforcement.settle(Finding(Proof.UNPROVEN, f"NetworkPolicies cannot be made: {error}"))
            LOG.warning("tasks with a restricted network will be refused: %s", error)

    def own_policy(self, name: str) -> OwnPolicy:
        return OwnPolicy(self._cluster, self._namespace, name)

    def own_policy_manifest(self, name: str, rules: list[dict[str, Any]]) -> dict[str, Any]:
        return network.own_policy(name, self._labels, self._anchor.owner(), rules)

    async def relabel(self, pod: str, labels: dict[str, str | None]) -> None:
        """None takes a label away."""
        path = f"/api/v1/namespaces/{self._namespace}/pods/{pod}"
        try:
            await self._cluster.request("PATCH", path, body={"metadata": {"labels": labels}})
        except (KubeError, KubeUnreachableError) as error:
            raise SandboxStartError(
                "NetworkNotSwitched", f"the network of {pod} cannot be changed: {error}; check the chart's RBAC"
            ) from error

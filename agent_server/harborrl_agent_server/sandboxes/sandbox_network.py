"""One sandbox's network: proven, resolved and in force before its pod is asked for, and removed with it."""

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network
from typing import Any
from urllib.parse import urlsplit

from harbor.models.task.config import NetworkMode, NetworkPolicy

from harborrl_agent_server.sandboxes import network
from harborrl_agent_server.sandboxes.cluster_network import ClusterNetwork
from harborrl_agent_server.sandboxes.names import pinned
from harborrl_agent_server.sandboxes.network import Endpoint, Reach, host_aliases, reach_of


class SandboxNetwork:
    """`name`: of the pod. Nothing is made for a sandbox that may reach all that its namespace lets it."""

    def __init__(
        self, ground: ClusterNetwork, name: str, *, reachable: str | None, private: Sequence[IPv4Network | IPv6Network]
    ) -> None:
        self._ground = ground
        self._name = name
        self._endpoint = endpoint_of(reachable)
        self._private = private
        self._policy = ground.own_policy(name)
        self._pins: dict[str, list[str]] = {}
        self.reach = Reach()

    async def prepare(self, policy: NetworkPolicy, image: str, labels: dict[str, str]) -> None:
        """Before the pod; raises `SandboxStartError` with what cannot be had. `labels`: the pod's others."""
        if policy.network_mode is not NetworkMode.PUBLIC:
            await self._ground.enforcement.assured(image)
        hosts = [host for host in policy.allowed_hosts if self._endpoint is None or host != self._endpoint.address]
        self._pins = await pinned(hosts, self._ground.resolve)
        self.reach = reach_of(policy, self._pins, self._endpoint, self._private)
        rules = self.reach.rules()
        if not self.reach.restricted and self._endpoint and await self._ground.isolates(labels | self.labels()):
            rules = network.endpoint_rules(self._endpoint)
        if rules:
            await self._policy.write(self._ground.own_policy_manifest(self._name, rules))

    def labels(self) -> dict[str, str]:
        return {network.SANDBOX: self._name} | self.reach.labels()

    def pod_fields(self) -> dict[str, Any]:
        if not self.reach.restricted:
            return {}
        return {"hostAliases": host_aliases(self._pins), "dnsConfig": network.NO_DNS}

    async def remove(self) -> bool:
        """Whether nothing is left of it; never raises."""
        return await self._policy.remove()


def endpoint_of(url: str | None) -> Endpoint | None:
    """Of `http://IP:PORT`."""
    if url is None:
        return None
    parts = urlsplit(url)
    return Endpoint(parts.hostname or "", parts.port or 80)

"""One sandbox's network: proven, resolved and in force before its pod is asked for, and removed with it."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from ipaddress import IPv4Network, IPv6Network
from typing import Any
from urllib.parse import urlsplit

from harbor.models.task.config import NetworkMode, NetworkPolicy

from harborrl_agent_server.errors import SandboxStartError
from harborrl_agent_server.sandboxes import network
from harborrl_agent_server.sandboxes.cluster_network import ClusterNetwork
from harborrl_agent_server.sandboxes.names import pinned
from harborrl_agent_server.sandboxes.network import Endpoint, Reach, host_aliases, reach_of
from harborrl_agent_server.sandboxes.tries import until_cut

Try = Callable[[], Awaitable[str | None]]
"""What the sandbox reaches of the addresses that a probe tries: one of them, or none."""


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

    async def prepare(self, policy: NetworkPolicy, later: Iterable[NetworkPolicy], image: str) -> None:
        """Before the pod; raises `SandboxStartError` with what cannot be had.

        `later`: of further phases, whose names have to be pinned now too.
        """
        policies = [policy, *later]
        if any(each.network_mode is not NetworkMode.PUBLIC for each in policies):
            await self._ground.enforcement.assured(image)
        self._pins = await pinned((host for each in policies for host in self._hosts(each)), self._ground.resolve)
        self.reach, *_ = [self._reach(each) for each in policies]
        if rules := self.reach.rules():
            await self._policy.write(self._ground.own_policy_manifest(self._name, rules))

    async def switch(self, policy: NetworkPolicy, *, pod: str, reaches: Try) -> None:
        """To that of another phase; returns when a narrower one is in force, as far as the sandbox can tell."""
        before, self.reach = self.reach, self._reach(policy)
        known = await reaches() if self.reach.restricted else None
        if rules := self.reach.rules():
            await self._policy.write(self._ground.own_policy_manifest(self._name, rules))
        await self._ground.relabel(pod, {network.LABEL: self.reach.labels().get(network.LABEL)})
        if before.rules() and not rules:
            await self._policy.remove()
        if known is not None and not self.reach.covers(known.rpartition(":")[0]):
            await cut_off(reaches, known, self._ground.follow_s)

    def _hosts(self, policy: NetworkPolicy) -> list[str]:
        return [host for host in policy.allowed_hosts if self._endpoint is None or host != self._endpoint.address]

    def _reach(self, policy: NetworkPolicy) -> Reach:
        return reach_of(policy, self._pins, self._endpoint, self._private)

    def labels(self) -> dict[str, str]:
        return {network.SANDBOX: self._name} | self.reach.labels()

    def pod_fields(self) -> dict[str, Any]:
        aliases = {"hostAliases": host_aliases(self._pins)} if self._pins else {}
        return aliases | ({"dnsConfig": network.NO_DNS} if self.reach.restricted else {})

    async def remove(self) -> bool:
        """Whether nothing is left of it; never raises."""
        return await self._policy.remove()


async def cut_off(reaches: Try, known: str, follow_s: float) -> None:
    if await until_cut(reaches, follow_s) is not None:
        raise SandboxStartError(
            "NetworkNotSwitched",
            f"the sandbox still reached {known} {follow_s:.0f} s after its network was restricted; look at the plugin",
        )


def endpoint_of(url: str | None) -> Endpoint | None:
    """Of `http://IP:PORT`."""
    if url is None:
        return None
    parts = urlsplit(url)
    return Endpoint(parts.hostname or "", parts.port or 80)

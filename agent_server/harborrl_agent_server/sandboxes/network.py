"""What a sandbox may reach, as labels and NetworkPolicies: pure.

Policies add up: one of the platform's that lets every pod of the namespace out opens restricted sandboxes too, so it
has to leave out pods with `LABEL`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Any

from harbor.models.task.config import NetworkMode, NetworkPolicy

from harborrl_agent_server.errors import SandboxStartError

Network = IPv4Network | IPv6Network

LABEL = "harborrl.dev/network"
"""On every sandbox that may not reach all that its namespace allows: `none`, or `allowlist` with an own policy."""

SANDBOX = "harborrl.dev/sandbox"
"""The pod's own name, for its own policy to select."""

NO_NETWORK = {LABEL: "none"}
ALLOWLIST = {LABEL: "allowlist"}

CLOSED = tuple(
    ip_network(text)
    for text in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.168.0.0/16", "224.0.0.0/4", "::/127", "::ffff:0:0/96", "fc00::/7", "fe80::/10", "ff00::/8"),
    )
)
"""Where clusters, their nodes and metadata services live. A task's author is not who decides about them."""

NO_DNS = {"options": [{"name": "timeout", "value": "1"}, {"name": "attempts", "value": "1"}]}
"""Names cannot be asked for behind such a policy: programs that try learn so after a second, not after ten."""


@dataclass(frozen=True)
class Endpoint:
    """One address and port, whatever else is closed."""

    address: str
    port: int


@dataclass(frozen=True)
class Reach:
    """What one phase of a trial may reach; `blocks` are ipBlocks as a policy holds them."""

    restricted: bool = False
    blocks: tuple[Mapping[str, Any], ...] = ()
    endpoint: Endpoint | None = None

    def labels(self) -> dict[str, str]:
        if not self.restricted:
            return {}
        return dict(ALLOWLIST if self.rules() else NO_NETWORK)

    def covers(self, address: str) -> bool:
        """Whether it stays reachable; everything does from an unrestricted sandbox, as far as we know."""
        try:
            one = ip_network(address)
        except ValueError:  # of a zone, fe80::1%eth0: no policy names one
            return not self.restricted
        return not self.restricted or any(
            within(one, ip_network(block["cidr"]))
            and not any(within(one, ip_network(without)) for without in block.get("except", ()))
            for block in self.blocks
        )

    def rules(self) -> list[dict[str, Any]]:
        """Egress rules beyond the denial; empty for an unrestricted sandbox, which no policy of ours selects."""
        if not self.restricted:
            return []
        rules: list[dict[str, Any]] = []
        if self.blocks:
            rules.append({"to": [{"ipBlock": dict(block)} for block in self.blocks]})
        if self.endpoint:
            rules += endpoint_rules(self.endpoint)
        return rules


def endpoint_rules(endpoint: Endpoint) -> list[dict[str, Any]]:
    block = {"cidr": str(ip_network(endpoint.address))}
    return [{"to": [{"ipBlock": block}], "ports": [{"protocol": "TCP", "port": endpoint.port}]}]


def reach_of(
    policy: NetworkPolicy, pinned: Mapping[str, Sequence[str]], endpoint: Endpoint | None, private: Iterable[Network]
) -> Reach:
    """`pinned`: the addresses of each host name in the policy; `private`: networks within `CLOSED` that are allowed."""
    if policy.network_mode is NetworkMode.PUBLIC:
        return Reach()
    allowed = tuple(private)
    found: dict[str, Mapping[str, Any]] = {}
    for host in policy.allowed_hosts:
        if endpoint is not None and host == endpoint.address:
            continue  # Harbor lists the host of the agent's model; of ours one port is enough
        for text in pinned.get(host, (host,)):
            opened = blocks_of(ip_network(text), allowed)
            if not opened:
                raise SandboxStartError("HostRefused", refusal(host, text))
            found |= {block["cidr"]: block for block in opened}
    return Reach(True, tuple(found.values()), endpoint)


def refusal(host: str, text: str) -> str:
    named = host if host == text else f"{host} ({text})"
    return (
        f"the task's allowed_hosts name {named}, which is private to the cluster or its network; leave it out,"
        " or list its network in agentServer.sandbox.privateHosts"
    )


def blocks_of(network: Network, allowed: Sequence[Network]) -> list[dict[str, Any]]:
    """The ipBlocks that open `network` without what is closed in it; none when all of it is closed."""
    blocks: list[dict[str, Any]] = []
    if not any(within(network, closed) for closed in CLOSED):
        without = [str(closed) for closed in CLOSED if within(closed, network)]
        blocks.append({"cidr": str(network), **({"except": without} if without else {})})
    for each in allowed:
        if within(each, network) or within(network, each):
            both = network if within(network, each) else each
            blocks.append({"cidr": str(both)})
    return blocks


def within(inner: Network, outer: Network) -> bool:
    if isinstance(inner, IPv4Network) and isinstance(outer, IPv4Network):
        return inner.subnet_of(outer)
    if isinstance(inner, IPv6Network) and isinstance(outer, IPv6Network):
        return inner.subnet_of(outer)
    return False


def host_aliases(pinned: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """Entries of /etc/hosts: pinned names work where no name server can be asked."""
    by_address: dict[str, list[str]] = {}
    for name, addresses in sorted(pinned.items()):
        for address in addresses:
            by_address.setdefault(address, []).append(name)
    return [{"ip": address, "hostnames": names} for address, names in by_address.items()]


def no_network_policy() -> dict[str, Any]:
    """Denies all traffic of the pods labelled as without network."""
    labels = {"app.kubernetes.io/managed-by": "harborrl"}
    spec = {"podSelector": {"matchLabels": NO_NETWORK}, "policyTypes": ["Ingress", "Egress"]}
    return manifest({"name": "harborrl-no-network", "labels": labels}, spec)


def own_policy(
    name: str, labels: Mapping[str, str], owner: Mapping[str, Any], rules: list[dict[str, Any]]
) -> dict[str, Any]:
    """Of one pod, by its own name: no way in, and out what `rules` say."""
    meta = {"name": name, "labels": dict(labels), "ownerReferences": [dict(owner)]}
    selector = {"matchLabels": {SANDBOX: name}}
    return manifest(meta, {"podSelector": selector, "policyTypes": ["Ingress", "Egress"], "egress": rules})


def manifest(meta: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": meta, "spec": spec}

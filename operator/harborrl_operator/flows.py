"""Every flow of a job's pods: who opens a connection to whom on which ports. docs/network.md lists the same rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from harborrl_operator.constants import AGENT_PORT, DASHBOARD_PORT, GATEWAY_PORT, LABEL_JOB_UID, RAY_METRICS_PORT
from harborrl_operator.observed import Address
from harborrl_operator.resolve import ResolvedJob

LAST_PORT = 65535

Peer = dict[str, Any]
"""A NetworkPolicyPeer."""

Ports = tuple[dict[str, Any], ...]
"""NetworkPolicyPorts; none: every port."""

ANYWHERE: tuple[Peer, ...] = ({"ipBlock": {"cidr": "0.0.0.0/0"}}, {"ipBlock": {"cidr": "::/0"}})

USUAL_API_PORTS = (443, 6443)


class Group(StrEnum):
    """Pods of one job that share their flows; heads are trainers too."""

    AGENT_SERVER = "agent-server"
    PREFLIGHT = "preflight"
    TRAINER = "trainer"
    HEAD = "head"


@dataclass(frozen=True)
class Outside:
    """Who is no pod of this job. Never empty: Kubernetes reads no peers as everybody."""

    peers: tuple[Peer, ...]

    def __post_init__(self) -> None:
        if not self.peers:
            raise ValueError("a flow from or to nobody is no flow")


@dataclass(frozen=True)
class Flow:
    """Connections from `source` to `target`; answers need no flow of their own."""

    name: str
    source: Group | Outside
    target: Group | Outside
    ports: Ports = ()


def flows(job: ResolvedJob, api_server: Sequence[Address]) -> list[Flow]:
    """`api_server`: as observed; empty when it could not be read."""
    ports = job.spec.trainer.ports
    sessions = (tcp(ports.session, ports.session + ports.session_count - 1), tcp(ports.router))
    theirs = _agents_elsewhere(job)
    agents: Group | Outside = theirs.target if theirs else Group.AGENT_SERVER
    agent_port = theirs.ports if theirs else (tcp(AGENT_PORT),)
    return [
        *_dns(job),
        *_to_the_api_server(job, api_server),
        Flow("trials", Group.TRAINER, agents, agent_port),
        Flow("health", Group.PREFLIGHT, agents, agent_port),
        # A flush is passed on to the versions that drain.
        *([] if theirs else [Flow("flush", Group.AGENT_SERVER, Group.AGENT_SERVER, agent_port)]),
        Flow("sessions", theirs.source if theirs else Group.AGENT_SERVER, Group.HEAD, sessions),
        # Whoever reaches Ray's dashboard runs what he likes in the head. Only the supervisor beside it needs it.
        Flow("ray", Group.TRAINER, Group.TRAINER, (tcp(1, DASHBOARD_PORT - 1), tcp(DASHBOARD_PORT + 1, LAST_PORT))),
        *_from_sandboxes(job),
        *_monitoring(job),
        *_egress(job),
    ]


def tcp(first: int, last: int | None = None) -> dict[str, Any]:
    port: dict[str, Any] = {"protocol": "TCP", "port": first}
    return port if last is None or last == first else port | {"endPort": last}


def _dns(job: ResolvedJob) -> list[Flow]:
    dns = job.settings.network.dns
    ports = tuple({"protocol": protocol, "port": port} for port in dns.ports for protocol in ("UDP", "TCP"))
    target = Outside(tuple(dns.peers) or ANYWHERE)
    return [Flow("dns", group, target, ports) for group in (Group.AGENT_SERVER, Group.PREFLIGHT, Group.TRAINER)]


def _to_the_api_server(job: ResolvedJob, seen: Sequence[Address]) -> list[Flow]:
    chosen = job.settings.network.api_server
    cidrs = chosen.cidrs or list(dict.fromkeys(address.cidr for address in seen))
    ports = chosen.ports or list(dict.fromkeys(address.port for address in seen)) or list(USUAL_API_PORTS)
    target = Outside(tuple({"ipBlock": {"cidr": cidr}} for cidr in cidrs) or ANYWHERE)
    where = tuple(tcp(port) for port in ports)
    return [
        Flow("agent-api", Group.AGENT_SERVER, target, where),
        Flow("supervisor-api", Group.HEAD, target, where),
    ]


@dataclass(frozen=True)
class _Elsewhere:
    """An agent server that is no pod of the job."""

    target: Outside
    source: Outside
    ports: Ports


def _agents_elsewhere(job: ResolvedJob) -> _Elsewhere | None:
    """A Service's port is not its pods': of a Service the namespace is known, of another name only the port."""
    url = job.spec.agent_server.url
    if not url:
        return None
    parts = urlsplit(url)
    names = (parts.hostname or "").split(".")
    if len(names) == 1 or (len(names) > 2 and names[2] == "svc"):
        namespace = names[1] if len(names) > 1 else job.job.namespace
        there = Outside(({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}},))
        return _Elsewhere(there, there, ())
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return _Elsewhere(Outside(ANYWHERE), Outside(ANYWHERE), (tcp(port),))


def _from_sandboxes(job: ResolvedJob) -> list[Flow]:
    """The model gateway, for agents that are programs of the sandbox.

    The other end is opened by the agent server: policies in the namespace of sandboxes are its own.
    """
    if not (job.needs_gateway and job.sandbox["backend"] == "kubernetes"):
        return []
    sandboxes = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": job.sandbox["namespace"]}},
        "podSelector": {"matchLabels": {LABEL_JOB_UID: job.job.uid}},
    }
    return [Flow("gateway", Outside((sandboxes,)), Group.AGENT_SERVER, (tcp(GATEWAY_PORT),))]


def _monitoring(job: ResolvedJob) -> list[Flow]:
    peers = tuple(job.settings.network.monitoring)
    if not peers:
        return []
    source = Outside(peers)
    return [
        Flow("metrics", source, Group.AGENT_SERVER, (tcp(AGENT_PORT),)),
        Flow("metrics", source, Group.TRAINER, (tcp(RAY_METRICS_PORT),)),
    ]


def _egress(job: ResolvedJob) -> list[Flow]:
    """What the job and the platform add."""
    out = []
    for rule in job.spec.network.egress:
        block: dict[str, Any] = {"cidr": rule.cidr} | ({"except": rule.except_} if rule.except_ else {})
        target = Outside(({"ipBlock": block},))
        out.append(Flow("egress", Group.TRAINER, target, tuple(tcp(port) for port in rule.ports)))
    for theirs in job.settings.network.egress:
        target = Outside(tuple(theirs.get("to") or ANYWHERE))
        out.append(Flow("egress", Group.TRAINER, target, tuple(theirs.get("ports") or ())))
    return out

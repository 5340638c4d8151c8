"""Fields of task.toml by which a task asks for what a sandbox pod of ours does not offer: pure.

Mirrors what the agent server refuses when a trial is built or starts (docs/agent-server.md has each field).
"""

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any

from harborrl_trainer.job import Sandbox

Network = IPv4Network | IPv6Network

CLOSED = tuple(
    ip_network(text)
    for text in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.168.0.0/16", "224.0.0.0/4", "::/127", "::ffff:0:0/96", "fc00::/7", "fe80::/10", "ff00::/8"),
    )
)
"""Where clusters, their nodes and metadata services live; `agentServer.sandbox.privateHosts` opens some of it."""


def unsupported_fields(directory: Path, task: Mapping[str, Any], sandbox: Sandbox) -> list[str]:
    """Names of the fields, each once."""
    environment, verifier = section(task, "environment"), section(task, "verifier")
    places = (("environment", environment), ("verifier.environment", section(verifier, "environment")))
    found = [f"{place}.{name}" for place, part in places for name in _of_environment(part, sandbox)]
    phases = (*places, ("agent", section(task, "agent")), ("verifier", verifier))
    private = [network for text in sandbox.private_hosts if (network := _network(text)) is not None]
    found += [f"{place}.allowed_hosts" for place, part in phases if _names_a_closed_host(part, private)]
    found += [f"environment.{name}" for name in ("mcp_servers", "skills_dir") if environment.get(name)]
    if any(_service(each) not in (None, "main") for each in _listed(verifier, "collect")):
        found.append("verifier.collect")
    if any((directory / "environment" / f"docker-compose.{end}").is_file() for end in ("yaml", "yml")):
        found.append("environment/docker-compose.yaml")
    return list(dict.fromkeys(found))


def section(task: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = task.get(name)
    return part if isinstance(part, dict) else {}


def _of_environment(part: Mapping[str, Any], sandbox: Sandbox) -> Iterator[str]:
    if str(part.get("os", "linux")).lower() != "linux":
        yield "os"
    if part.get("tpu"):
        yield "tpu"
    wanted, known = _listed(part, "gpu_types"), {name.lower() for name in sandbox.node_selector_for_gpu}
    if part.get("gpus") and wanted and not any(str(name).lower() in known for name in wanted):
        yield "gpu_types"


def _names_a_closed_host(part: Mapping[str, Any], private: Sequence[Network]) -> bool:
    """Patterns cannot be pinned. What a name resolves to is seen by the sandbox's start alone."""
    if part.get("network_mode") != "allowlist":
        return False
    return any(_is_closed(str(host), private) for host in _listed(part, "allowed_hosts"))


def _is_closed(host: str, private: Sequence[Network]) -> bool:
    network = _network(host)
    if network is None:
        return "*" in host
    is_inside = any(_within(network, closed) for closed in CLOSED)
    return is_inside and not any(_within(network, each) or _within(each, network) for each in private)


def _network(text: str) -> Network | None:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        return None


def _within(inner: Network, outer: Network) -> bool:
    return inner.version == outer.version and inner.subnet_of(outer)  # type: ignore[arg-type]  # the same version


def _listed(part: Mapping[str, Any], name: str) -> list[Any]:
    """What is no list is Harbor's to refuse."""
    value = part.get(name)
    return value if isinstance(value, list) else []


def _service(entry: Any) -> Any:
    return entry.get("service") if isinstance(entry, dict) else None

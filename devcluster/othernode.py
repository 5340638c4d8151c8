"""Whether another Kubernetes node lives on this machine. Two would undo each other's Services and policies."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from devcluster.errors import CommandError, UnsuitableHostError
from devcluster.settings import Settings
from devcluster.shell import run, succeeds

NODE_PROGRAMS = frozenset({"kubelet", "kubelite", "k3s", "k3s-server", "k3s-agent", "rke2", "k0s"})
"""Names as /proc/PID/comm has them: of Kubernetes, MicroK8s, k3s, RKE2 and k0s."""

CHAINS = re.compile(r"^:(KUBE-(?:ROUTER-|NWPLCY-|POD-FW-|SERVICES|NODEPORTS|FORWARD)\S*)", re.MULTILINE)
"""Of kube-proxy's iptables mode and of kube-router, which k3s holds too; `down` removes kube-router's by prefix."""


def _saved_rules() -> str:
    try:
        return run(["iptables-save"])
    except CommandError:
        return ""  # Not installed, or no such kernel module: then nobody has made rules with it.


@dataclass(frozen=True)
class Machine:
    """Where to look; each part says what is there now."""

    proc: Path = Path("/proc")
    kubelet_config: Path = Path("/var/lib/kubelet/config.yaml")
    """Written by kubeadm; device plugins meet the kubelet beside it, at a place that cannot be chosen."""

    has_proxy_table: Callable[[], bool] = lambda: succeeds(["nft", "list", "table", "ip", "kube-proxy"])
    saved_rules: Callable[[], str] = _saved_rules


def other_node(machine: Machine) -> str | None:
    """What tells of a node, in words; None where nothing does. Asked only where no node of ours is."""
    for pid, name in _neighbours(machine.proc):
        if name in NODE_PROGRAMS:
            return f"process {name}, pid {pid}"
    if machine.kubelet_config.exists():
        return f"{machine.kubelet_config}, kubeadm's"
    if machine.has_proxy_table():
        return "nftables table kube-proxy"
    chain = CHAINS.search(machine.saved_rules())
    return f"iptables chain {chain[1]}" if chain else None


def refuse_other_node(settings: Settings, machine: Machine | None = None) -> None:
    if (settings.state / "host.json").exists():
        return
    found = other_node(machine or Machine())
    if found:
        raise UnsuitableHostError(
            f"Another Kubernetes node runs here, or was not removed whole ({found}). Use it with `up --context NAME`,"
            " or remove it."
        )


def _neighbours(proc: Path) -> Iterator[tuple[int, str]]:
    """Processes of our network namespace: a node in a container has one of its own and is nobody's rival."""
    network = (proc / "self" / "ns" / "net").readlink()
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if (entry / "ns" / "net").readlink() == network:
                yield int(entry.name), (entry / "comm").read_text().strip()
        except OSError:  # The process ended, or is not ours to look into.
            continue

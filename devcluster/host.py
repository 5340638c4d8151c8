"""What the cluster changes on the machine outside its state folder, and how each change is taken back."""

import contextlib
import ipaddress
import json
import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

from devcluster.errors import CommandError, NotRootError, UnsuitableHostError
from devcluster.nodeconfig import masquerade_rules
from devcluster.processes import write_atomically
from devcluster.settings import BRIDGE, CGROUP, CNI_NETWORK, NFT_TABLE, Network, Settings
from devcluster.shell import run

CGROUP_ROOT = Path("/sys/fs/cgroup")

SYSCTLS = {
    "net/ipv4/ip_forward": "1",
    "net/bridge/bridge-nf-call-iptables": "1",
}
"""Set by `up`. The second one makes kube-router see traffic between pods on the bridge."""

KUBELET_SYSCTLS = (
    "vm/overcommit_memory",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
"""Set by the kubelet by itself; recorded here so that `down` can restore them."""

CONTAINER_LOG_LINKS = Path("/var/log/containers")
CNI_RESULTS = Path("/var/lib/cni/results")


EMPTY_FOLDERS = (
    Path("/var/lib/kubelet/device-plugins"),
    Path("/var/lib/kubelet"),
    CONTAINER_LOG_LINKS,
    CNI_RESULTS,
    CNI_RESULTS.parent,
    Path("/run/containerd/s"),
    Path("/run/containerd/runc/k8s.io"),
    Path("/run/containerd/runc"),
    Path("/run/containerd"),
)
"""Made by the kubelet, libcni and containerd at places that cannot be chosen; removed if nobody else uses them."""


def require_root(command: str, user: int | None = None) -> None:
    if (os.geteuid() if user is None else user) != 0:
        raise NotRootError(command)


def overlapping_route(routes: Iterable[dict[str, str]], network: Network) -> str | None:
    """The first route of the machine that our ranges would hide, as `range via device`; our own bridge is no rival."""
    ours = [ipaddress.ip_network(network.pods), ipaddress.ip_network(network.services)]
    for route in routes:
        if route["dst"] == "default" or route.get("dev") == BRIDGE:
            continue
        other = ipaddress.ip_network(route["dst"], strict=False)
        if any(other.overlaps(mine) for mine in ours):
            return f"{other} on {route.get('dev', 'no device')}"
    return None


def refuse_overlap(network: Network) -> None:
    rival = overlapping_route(json.loads(run(["ip", "-json", "-4", "route"])), network)
    if rival:
        raise UnsuitableHostError(
            f"The machine already routes {rival}, which overlaps {network.pods} or {network.services}."
        )


def record_sysctls(settings: Settings) -> None:
    """Notes the values to restore, once: a second `up` must not note our own values as the machine's."""
    record = settings.state / "host.json"
    if record.exists():
        return
    names = [*SYSCTLS, *KUBELET_SYSCTLS]
    present = {name: Path("/proc/sys", name) for name in names if Path("/proc/sys", name).exists()}
    write_atomically(record, json.dumps({name: path.read_text().strip() for name, path in present.items()}, indent=2))


def set_sysctls() -> None:
    for name, value in SYSCTLS.items():
        path = Path("/proc/sys", name)
        if path.exists() and path.read_text().strip() != value:
            path.write_text(value)


def restore_sysctls(settings: Settings) -> None:
    record = settings.state / "host.json"
    if not record.exists():
        return
    for name, value in json.loads(record.read_text()).items():
        path = Path("/proc/sys", name)
        if path.read_text().strip() != value:
            path.write_text(value)


def default_mtu() -> int:
    """MTU of the way out: a bridge with a larger one would black-hole large packets from pods."""
    routes = json.loads(run(["ip", "-json", "-4", "route", "show", "default"]))
    if not routes:
        return 1500
    return int(Path("/sys/class/net", routes[0]["dev"], "mtu").read_text())


def make_bridge(network: Network, mtu: int) -> None:
    """The bridge exists before the first pod: its address is the node's, and the API server listens there."""
    if not Path("/sys/class/net", BRIDGE).exists():
        run(["ip", "link", "add", BRIDGE, "mtu", str(mtu), "type", "bridge"])
    length = network.pods.rpartition("/")[2]
    run(["ip", "address", "replace", f"{network.gateway}/{length}", "dev", BRIDGE])
    run(["ip", "link", "set", BRIDGE, "up"])


def make_masquerade(settings: Settings) -> None:
    run(["nft", "-f", "-"], stdin=masquerade_rules(settings))


def cgroup_hierarchies(root: Path = CGROUP_ROOT) -> list[Path]:
    """The folder in which our cgroup lies: one per controller in version 1, one in all in version 2."""
    if (root / "cgroup.controllers").exists():
        return [root]
    return [path for path in sorted(root.iterdir()) if (path / "cgroup.procs").exists() and not path.is_symlink()]


def make_cgroups(root: Path = CGROUP_ROOT) -> None:
    """The kubelet wants its root cgroup to exist in every hierarchy. UnsuitableHostError where that fails."""
    try:
        _make_cgroups(root)
    except OSError as error:
        raise UnsuitableHostError(
            f"The kernel refuses a cgroup for pods ({error}). In a container or a nested cgroup, give it a hierarchy of"
            " its own that is writable, or run on the machine itself."
        ) from error


def _make_cgroups(root: Path) -> None:
    for hierarchy in cgroup_hierarchies(root):
        group = hierarchy / CGROUP
        group.mkdir(exist_ok=True)
        if hierarchy.name == "cpuset":
            for name in ("cpuset.cpus", "cpuset.mems"):
                if not (group / name).read_text().strip():
                    (group / name).write_text((hierarchy / name).read_text())
        if (hierarchy / "cgroup.subtree_control").exists() and hierarchy == root:
            enabled = " ".join(f"+{name}" for name in (hierarchy / "cgroup.controllers").read_text().split())
            (hierarchy / "cgroup.subtree_control").write_text(enabled)


def _descendants(group: Path) -> Iterator[Path]:
    """Child groups before their parents."""
    for child in group.iterdir():
        if child.is_dir():
            yield from _descendants(child)
    yield group


def kill_pods() -> None:
    """Kills whatever is still in our cgroup: the processes of pods, however they were started."""
    for hierarchy in cgroup_hierarchies():
        group = hierarchy / CGROUP
        for member in _descendants(group) if group.exists() else ():
            for pid in (member / "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)


def remove_cgroups() -> list[Path]:
    """Removes our groups; the value is those that still hold a process."""
    remaining = []
    for hierarchy in cgroup_hierarchies():
        group = hierarchy / CGROUP
        for member in _descendants(group) if group.exists() else ():
            try:
                member.rmdir()
            except OSError:
                remaining.append(member)
    return remaining


def our_shims(settings: Settings, proc: Path = Path("/proc")) -> list[int]:
    """Containerd's helpers, one a pod, which live on when containerd ends; their command line names our socket."""
    address = str(settings.containerd_socket).encode()
    found = []
    for entry in proc.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if b"containerd-shim" in words[0] and address in words:
                    found.append(int(entry.name))
    return found


def kill_shims(settings: Settings) -> None:
    for pid in our_shims(settings):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def remove_shim_sockets(settings: Settings) -> None:
    """Sockets that killed shims left in containerd's shared folder; each pod's folder names its own."""
    tasks = settings.run / "containerd" / "io.containerd.runtime.v2.task" / "k8s.io"
    for address in tasks.glob("*/address"):
        Path(address.read_text().strip().removeprefix("unix://")).unlink(missing_ok=True)


def mounts_below(folder: Path, mountinfo: str) -> list[str]:
    """Mount points at or below `folder`, last mounted first."""
    points = [line.split()[4].replace("\\040", " ") for line in mountinfo.splitlines()]
    prefix = f"{folder}/"
    return [point for point in reversed(points) if point == str(folder) or point.startswith(prefix)]


def unmount_below(folder: Path) -> None:
    for point in mounts_below(folder, Path("/proc/self/mountinfo").read_text()):
        run(["umount", "--lazy", point])


def remove_network() -> None:
    """Bridge, masquerading, kube-proxy's tables; pods' interfaces went with their network namespaces."""
    if Path("/sys/class/net", BRIDGE).exists():
        run(["ip", "link", "delete", BRIDGE])
    for family, table in (("ip", NFT_TABLE), ("ip", "kube-proxy"), ("ip6", "kube-proxy")):
        with contextlib.suppress(CommandError):
            run(["nft", "delete", "table", family, table])


def remove_leftover_files(settings: Settings) -> None:
    """Files at places that the kubelet and libcni do not let us choose."""
    for link in CONTAINER_LOG_LINKS.iterdir() if CONTAINER_LOG_LINKS.exists() else ():
        if link.is_symlink() and str(link.readlink()).startswith(f"{settings.logs}/"):
            link.unlink()
    for result in CNI_RESULTS.glob(f"{CNI_NETWORK}-*"):
        result.unlink()
    for folder in EMPTY_FOLDERS:
        with contextlib.suppress(OSError):
            folder.rmdir()

"""Where the cluster lives and what it is called: paths, ports, ranges and versions."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

KUBERNETES_VERSION = "v1.35.4"
"""Also the `replace` lines of go/go.mod and the version that the node reports; change them together."""

KUBERAY_VERSION = "v1.6.2"
COREDNS_VERSION = "v1.14.3"
LOCAL_PATH_VERSION = "v0.0.30"

NODE_NAME = "devcluster"
"""Fixed, so that a renamed machine keeps its node object."""

BRIDGE = "hrl0"
"""At most 15 characters (the kernel's limit for interface names)."""

NFT_TABLE = "harborrl_devcluster"
"""nftables table (family ip) that holds the masquerade rule for traffic from pods to other machines."""

CGROUP = "harborrl-devcluster"
"""Parent of every pod's cgroup, in each controller's hierarchy."""

CNI_NETWORK = "harborrl-devcluster"

DEFAULT_PORT_BASE = 26440
"""Below the kernel's ephemeral range (32768 and up), so no outgoing connection can sit on it, and
outside 30000-32767, which belongs to NodePort Services."""


@dataclass(frozen=True)
class Ports:
    """Ports on the bridge's address and loopback, counted up from one base."""

    base: int = DEFAULT_PORT_BASE

    @property
    def apiserver(self) -> int:
        return self.base

    @property
    def kubelet(self) -> int:
        return self.base + 1

    @property
    def kubelet_health(self) -> int:
        return self.base + 2

    @property
    def controller_manager(self) -> int:
        return self.base + 3

    @property
    def scheduler(self) -> int:
        return self.base + 4

    @property
    def proxy_health(self) -> int:
        return self.base + 5

    @property
    def proxy_metrics(self) -> int:
        return self.base + 6

    @property
    def router_health(self) -> int:
        return self.base + 7

    @property
    def registry(self) -> int:
        return self.base + 8

    def purposes(self) -> dict[int, str]:
        """Every port with what it is for, as error messages name it."""
        return {
            self.apiserver: "kube-apiserver",
            self.kubelet: "kubelet",
            self.kubelet_health: "kubelet health",
            self.controller_manager: "kube-controller-manager",
            self.scheduler: "kube-scheduler",
            self.proxy_health: "kube-proxy health",
            self.proxy_metrics: "kube-proxy metrics",
            self.router_health: "kube-router health",
        }


@dataclass(frozen=True)
class Network:
    """Address ranges. They must not overlap a route of the machine."""

    gateway: str = "10.157.0.1"
    """The bridge's address. It is the node's address too: the API server and the kubelet listen on it alone,
    so nothing is offered to other machines and a change of the machine's own address breaks nothing."""

    pods: str = "10.157.0.0/22"
    """1,022 addresses; the node runs at most 250 pods, and addresses of finished pods are freed late."""

    services: str = "10.157.8.0/22"
    kubernetes_service: str = "10.157.8.1"
    dns: str = "10.157.8.10"


@dataclass(frozen=True)
class Settings:
    state: Path
    """Everything that a cluster is: keys, etcd, containers, volumes, logs, sockets. `down` removes it."""

    cache: Path
    """What may be rebuilt and is shared between clusters: compiled programs. `down` keeps it."""

    ports: Ports = field(default_factory=Ports)
    network: Network = field(default_factory=Network)

    @property
    def kubeconfig(self) -> Path:
        return self.state / "kubeconfig"

    @property
    def run(self) -> Path:
        """Sockets and pid files."""
        return self.state / "run"

    @property
    def logs(self) -> Path:
        return self.state / "log"

    @property
    def config(self) -> Path:
        return self.state / "config"

    @property
    def pki(self) -> Path:
        return self.state / "pki"

    @property
    def volumes(self) -> Path:
        """Contents of PersistentVolumes."""
        return self.state / "volumes"

    @property
    def containerd_socket(self) -> Path:
        return self.run / "containerd.sock"

    @property
    def etcd_socket(self) -> Path:
        return self.run / "etcd.sock"

    @property
    def layout(self) -> Path:
        """OCI layout through which images reach the node."""
        return self.state / "images"


def load_settings(environment: Mapping[str, str] = os.environ, is_root: bool | None = None) -> Settings:
    """Settings from HARBORRL_STATE, HARBORRL_CACHE and HARBORRL_PORT_BASE, with the defaults of docs/devcluster.md."""
    home = Path(environment.get("HOME", "/"))
    root = os.geteuid() == 0 if is_root is None else is_root
    user_state = Path(environment.get("XDG_STATE_HOME") or home / ".local" / "state") / "harborrl-devcluster"
    default_state = Path("/var/lib/harborrl-devcluster") if root else user_state
    default_cache = Path(environment.get("XDG_CACHE_HOME") or home / ".cache") / "harborrl"
    return Settings(
        state=Path(environment.get("HARBORRL_STATE") or default_state),
        cache=Path(environment.get("HARBORRL_CACHE") or default_cache),
        ports=Ports(int(environment.get("HARBORRL_PORT_BASE") or DEFAULT_PORT_BASE)),
    )

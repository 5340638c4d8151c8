"""Command lines of the cluster's programs, as pure functions."""

from dataclasses import dataclass
from pathlib import Path

from devcluster.gobuild import Binaries
from devcluster.keeping import kept
from devcluster.processes import Program
from devcluster.settings import NODE_NAME, Settings


@dataclass(frozen=True)
class ControlPlane:
    """What one etcd + API server + controller manager needs; the same for the full cluster and for tests."""

    directory: Path
    address: str
    """Where the API server listens; its certificate is for this address."""

    port: int
    controller_manager_port: int
    services: str
    pki: Path
    config: Path
    run: Path
    pods: str | None = None
    """Range that the controller manager gives to nodes; None where there are no nodes."""

    kubelet: bool = True
    """False: no kubelet will ever be there, so nothing about kubelets is configured."""

    @property
    def url(self) -> str:
        return f"https://{self.address}:{self.port}"


def control_plane_of(settings: Settings) -> ControlPlane:
    return ControlPlane(
        directory=settings.state,
        address=settings.network.gateway,
        port=settings.ports.apiserver,
        controller_manager_port=settings.ports.controller_manager,
        services=settings.network.services,
        pki=settings.pki,
        config=settings.config,
        run=settings.run,
        pods=settings.network.pods,
    )


def memory(limit_mib: int, procs: int = 2) -> dict[str, str]:
    """Go runtime settings: collect earlier (GOGC 60), and harder near the soft limit."""
    return {"GOGC": "60", "GOMEMLIMIT": f"{limit_mib}MiB", "GOMAXPROCS": str(procs)}


def etcd(plane: ControlPlane, binaries: Binaries) -> Program:
    """Etcd on a unix socket: no client port, and only who may enter the folder can connect.

    Without fsync a crash of the machine may lose the last writes; a crash of etcd alone does not.
    """
    nobody = "http://127.0.0.1:1"
    return Program(
        "etcd",
        (
            binaries.path("etcd"),
            "--name=devcluster",
            f"--data-dir={plane.directory}/etcd",
            f"--listen-client-urls=unix://{plane.run}/etcd.sock",
            # One member never calls itself, but the flags must be host:port; port 0 is any free one.
            f"--advertise-client-urls={nobody}",
            "--listen-peer-urls=http://127.0.0.1:0",
            f"--initial-advertise-peer-urls={nobody}",
            f"--initial-cluster=devcluster={nobody}",
            "--unsafe-no-fsync",
            "--auto-compaction-mode=periodic",
            "--auto-compaction-retention=10m",
            "--snapshot-count=10000",
            "--log-level=warn",
        ),
        memory(256),
    )


def aggregation_flags(pki: Path) -> tuple[str, ...]:
    """Without these an APIService of Kueue or metrics-server breaks discovery, and so every namespace's deletion."""
    return (
        f"--requestheader-client-ca-file={pki}/front-proxy-ca.crt",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        f"--proxy-client-cert-file={pki}/front-proxy-client.crt",
        f"--proxy-client-key-file={pki}/front-proxy-client.key",
        "--enable-aggregator-routing=true",
    )


def apiserver(plane: ControlPlane, binaries: Binaries) -> Program:
    pki = plane.pki
    kubelet_flags = (
        f"--kubelet-certificate-authority={pki}/ca.crt",
        f"--kubelet-client-certificate={pki}/apiserver-kubelet-client.crt",
        f"--kubelet-client-key={pki}/apiserver-kubelet-client.key",
        # The node's name does not resolve.
        "--kubelet-preferred-address-types=InternalIP",
    )
    return Program(
        "kube-apiserver",
        (
            binaries.path("kube-apiserver"),
            f"--etcd-servers=unix://{plane.run}/etcd.sock",
            f"--bind-address={plane.address}",
            f"--advertise-address={plane.address}",
            f"--secure-port={plane.port}",
            f"--service-cluster-ip-range={plane.services}",
            f"--tls-cert-file={pki}/apiserver.crt",
            f"--tls-private-key-file={pki}/apiserver.key",
            f"--client-ca-file={pki}/ca.crt",
            f"--cert-dir={pki}",
            f"--service-account-key-file={pki}/service-accounts.crt",
            f"--service-account-signing-key-file={pki}/service-accounts.key",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            *aggregation_flags(pki),
            "--profiling=false",
            *(kubelet_flags if plane.kubelet else ()),
        ),
        memory(900),
        (pki / "apiserver.crt", pki / "ca.crt"),
    )


def controller_manager(plane: ControlPlane, binaries: Binaries) -> Program:
    pki = plane.pki
    kubeconfig = f"{plane.config}/controller-manager.kubeconfig"
    node_flags = (
        "--allocate-node-cidrs=true",
        f"--cluster-cidr={plane.pods}",
        f"--node-cidr-mask-size={plane.pods.rpartition('/')[2]}" if plane.pods else "",
    )
    return Program(
        "kube-controller-manager",
        (
            binaries.path("kube-controller-manager"),
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={plane.controller_manager_port}",
            f"--cert-dir={pki}/controller-manager",
            f"--cluster-signing-cert-file={pki}/ca.crt",
            f"--cluster-signing-key-file={pki}/ca.key",
            f"--root-ca-file={pki}/ca.crt",
            f"--service-account-private-key-file={pki}/service-accounts.key",
            f"--service-cluster-ip-range={plane.services}",
            "--use-service-account-credentials=true",
            "--leader-elect=false",
            "--kube-api-qps=100",
            "--kube-api-burst=200",
            "--profiling=false",
            *(node_flags if plane.pods else ("--controllers=*,-node-ipam-controller,-node-route-controller",)),
        ),
        memory(300),
        (Path(kubeconfig),),
    )


def scheduler(settings: Settings, binaries: Binaries) -> Program:
    kubeconfig = f"{settings.config}/scheduler.kubeconfig"
    return Program(
        "kube-scheduler",
        (
            binaries.path("kube-scheduler"),
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={settings.ports.scheduler}",
            f"--cert-dir={settings.pki}/scheduler",
            "--leader-elect=false",
            "--profiling=false",
        ),
        memory(150),
        (Path(kubeconfig),),
    )


def containerd(settings: Settings) -> Program:
    config = settings.config / "containerd.toml"
    return Program("containerd", ("/usr/bin/containerd", f"--config={config}"), memory(400), (config,))


def kubelet(settings: Settings, binaries: Binaries) -> Program:
    config, kubeconfig = settings.config / "kubelet.yaml", settings.config / "kubelet.kubeconfig"
    return Program(
        "kubelet",
        (
            binaries.path("kubelet"),
            f"--config={config}",
            f"--kubeconfig={kubeconfig}",
            f"--root-dir={settings.state}/kubelet",
            f"--cert-dir={settings.pki}/kubelet",
            f"--hostname-override={NODE_NAME}",
            f"--node-ip={settings.network.gateway}",
            "--v=1",
        ),
        memory(250),
        (config, kubeconfig, settings.pki / "kubelet.crt"),
    )


def kube_proxy(settings: Settings, binaries: Binaries) -> Program:
    config = settings.config / "kube-proxy.yaml"
    return Program(
        "kube-proxy",
        (binaries.path("kube-proxy"), f"--config={config}", f"--hostname-override={NODE_NAME}"),
        memory(120),
        (config, settings.config / "kube-proxy.kubeconfig"),
    )


def kube_router(settings: Settings, binaries: Binaries) -> Program:
    """Enforces NetworkPolicy, which the bridge plugin ignores; routes and Services are not its business here.

    Kept, because it ends itself when one of its calls of ipset fails, and counts on whoever starts it again: without it
    the policies that are there stay, and new ones do nothing.
    """
    kubeconfig = settings.config / "kube-router.kubeconfig"
    return Program(
        "kube-router",
        kept(
            (
                binaries.path("kube-router"),
                "--run-router=false",
                "--run-firewall=true",
                "--run-service-proxy=false",
                f"--hostname-override={NODE_NAME}",
                f"--kubeconfig={kubeconfig}",
                f"--service-cluster-ip-range={settings.network.services}",
                f"--health-port={settings.ports.router_health}",
                "--iptables-sync-period=1m",
            )
        ),
        {**memory(150), "NODE_NAME": NODE_NAME},
        (kubeconfig,),
    )

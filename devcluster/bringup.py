"""The steps of `up` for our own cluster, each of which finds what is there and adds what is missing."""

import json
import shutil
from pathlib import Path

import httpx

from devcluster import addons, components, host, nodeconfig
from devcluster.components import ControlPlane
from devcluster.controlplane import wait_until
from devcluster.credentials import write_credentials
from devcluster.errors import CommandError
from devcluster.existing import is_ready
from devcluster.gobuild import Binaries
from devcluster.loading import pull
from devcluster.ocilayout import Layout
from devcluster.processes import Supervisor, boot_id, write_atomically
from devcluster.settings import NODE_NAME, Settings
from devcluster.shell import run, succeeds


def prepare_machine(settings: Settings) -> None:
    settings.state.mkdir(parents=True, exist_ok=True)
    host.record_sysctls(settings)  # First: the record is also what marks the folder as ours.
    forget_last_boot(settings, boot_id())
    for folder in (settings.run, settings.logs, settings.config, settings.volumes, settings.layout):
        folder.mkdir(parents=True, exist_ok=True)
    settings.state.chmod(0o700)
    host.set_sysctls()
    host.make_bridge(settings.network, host.default_mtu())
    host.make_masquerade(settings)
    host.make_cgroups()


def forget_last_boot(settings: Settings, boot: str) -> None:
    """Drops sockets, pid files and containerd's runtime state of before a reboot, as a /run on tmpfs would have."""
    mark = settings.run / "boot"
    if mark.exists() and mark.read_text() != boot:
        shutil.rmtree(settings.run)
    settings.run.mkdir(parents=True, exist_ok=True)
    write_atomically(mark, boot)


def configuration_files(settings: Settings, mtu: int, resolv_conf: str) -> dict[Path, str]:
    """Every configuration file of the node with its content."""
    folder = settings.config
    return {
        folder / "containerd.toml": nodeconfig.containerd_toml(settings),
        folder / "registries" / "localhost" / "hosts.toml": nodeconfig.registry_hosts(settings.ports.registry),
        folder / "cni" / "10-bridge.conflist": nodeconfig.cni_conflist(settings, mtu),
        folder / "kubelet.yaml": nodeconfig.kubelet_config(settings),
        folder / "kube-proxy.yaml": nodeconfig.proxy_config(settings),
        folder / "resolv.conf": nodeconfig.pod_resolv_conf(resolv_conf),
    }


def write_configuration(settings: Settings, plane: ControlPlane, binaries: Binaries) -> None:
    resolv_conf = Path("/etc/resolv.conf").read_text()
    for path, content in configuration_files(settings, host.default_mtu(), resolv_conf).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)
    write_credentials(plane, settings.network.kubernetes_service, binaries.path("pki"), settings.kubeconfig)


def kubectl(settings: Settings, binaries: Binaries, *arguments: str, stdin: str | None = None) -> str:
    return run([binaries.path("kubectl"), f"--kubeconfig={settings.kubeconfig}", *arguments], stdin=stdin)


def healthy(port: int) -> bool:
    """Whether a program's health port on loopback says so."""
    try:
        return httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=5.0, trust_env=False).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def node_ready(settings: Settings, binaries: Binaries) -> bool:
    """The kubelet's word now, and the API server's: the node object alone stays Ready for 40 s after a kubelet died."""
    if not healthy(settings.ports.kubelet_health):
        return False
    try:
        node = json.loads(kubectl(settings, binaries, "get", "node", NODE_NAME, "-o", "json"))
    except CommandError:
        return False
    return is_ready(node)


def start_node(settings: Settings, binaries: Binaries, supervisor: Supervisor, busybox: Path) -> None:
    cri = binaries.path("cri")
    supervisor.ensure(components.containerd(settings))
    wait_until(lambda: succeeds([cri, settings.containerd_socket, "version"]), "containerd", supervisor)
    layout = Layout(settings.layout)
    addons.write_system_images(layout, binaries, busybox)
    pull(addons.SYSTEM_IMAGES, settings, cri, layout)
    supervisor.ensure(components.kubelet(settings, binaries))
    supervisor.ensure(components.kube_proxy(settings, binaries))
    wait_until(lambda: node_ready(settings, binaries), "kubelet", supervisor)
    supervisor.ensure(components.kube_router(settings, binaries))
    wait_until(lambda: healthy(settings.ports.proxy_health), "kube-proxy", supervisor)
    wait_until(lambda: healthy(settings.ports.router_health), "kube-router", supervisor)


def install_addons(settings: Settings, binaries: Binaries, kuberay: str, kuberay_version: str) -> None:
    """DNS, volumes and KubeRay, whose manifests are `kuberay`."""
    has_upstream = bool((settings.config / "resolv.conf").read_text())
    for manifest in (
        addons.coredns_manifest(settings, has_upstream=has_upstream),
        addons.local_path_manifest(settings),
        addons.kuberay_manifest(kuberay, kuberay_version),
    ):
        apply(settings, binaries, manifest)
    for namespace, name in addons.DEPLOYMENTS:
        wait_for(settings, binaries, namespace, name)


def apply(settings: Settings, binaries: Binaries, manifest: str) -> None:
    kubectl(settings, binaries, "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=manifest)


def wait_for(settings: Settings, binaries: Binaries, namespace: str, name: str) -> None:
    status = ("rollout", "status", f"deployment/{name}", f"--namespace={namespace}", "--timeout=180s")
    kubectl(settings, binaries, *status)

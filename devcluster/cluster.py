"""The own cluster: `up` brings it from whatever state it is in to a ready one, `down` leaves nothing."""

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from devcluster import addons, components, host, nodeconfig
from devcluster.controlplane import ensure_control_plane, wait_until
from devcluster.credentials import write_credentials
from devcluster.errors import CommandFailed, ComponentFailed, HostUnsuitable
from devcluster.gobuild import CONTROL_PLANE, NODE, Binaries, ensure_binaries
from devcluster.loading import load_image, pull
from devcluster.nodeconfig import CNI_PLUGINS
from devcluster.ocilayout import Layout
from devcluster.packages import ensure_packages
from devcluster.policyrules import remove_policy_rules
from devcluster.ports import listeners, refuse_taken
from devcluster.processes import Supervisor, write_atomically
from devcluster.progress import Reporter
from devcluster.settings import NODE_NAME, Settings
from devcluster.shell import run, succeeds

COMPONENTS = (
    "kube-router",
    "kube-proxy",
    "kubelet",
    "kube-scheduler",
    "kube-controller-manager",
    "containerd",
    "kube-apiserver",
    "etcd",
)
"""Background programs, in the order in which they are stopped."""


class OwnCluster:
    """A single-node Kubernetes that this machine builds and runs."""

    def __init__(self, settings: Settings, reporter: Reporter) -> None:
        self.settings = settings
        self.reporter = reporter
        self.supervisor = Supervisor(settings.run, settings.logs)
        self.plane = components.control_plane_of(settings)

    def binaries(self) -> Binaries:
        return ensure_binaries(self.settings.cache, (*CONTROL_PLANE, *NODE), self.reporter)

    def up(self) -> None:
        """Repairs or creates; returns when the node is Ready and the add-ons are available."""
        host.require_root("devcluster up")
        with self._lock():
            host.refuse_other_node(self.settings)
            self._refuse_taken_ports()
            ensure_packages(self.reporter, CNI_PLUGINS)
            host.refuse_overlap(self.settings.network)
            binaries = self.binaries()
            busybox = addons.ensure_busybox(binaries)
            with self.reporter.stage("Prepare the machine"):
                self._prepare()
                self._write_configuration(binaries)
            with self.reporter.stage("Start the control plane"):
                ensure_control_plane(self.plane, binaries, self.supervisor)
                self.supervisor.ensure(components.scheduler(self.settings, binaries))
            with self.reporter.stage("Start the node"):
                self._start_node(binaries, busybox)
            with self.reporter.stage("Install DNS, volumes and KubeRay"):
                self._install_addons(binaries)

    def load(self, image: str) -> None:
        host.require_root("devcluster load")
        with self._lock():
            if self.supervisor.record("containerd") is None:
                raise HostUnsuitable("The cluster does not run. Start it with `python -m devcluster up`.")
            binaries = self.binaries()
            with self.reporter.stage(f"Load {image}"):
                load_image(image, self.settings, binaries.path("cri"))

    def down(self) -> None:
        """Ends and removes everything. Safe at any state, and again after it was cut short."""
        host.require_root("devcluster down")
        with self._lock():
            if not self.settings.state.exists():
                self.reporter.say(f"Nothing to remove: {self.settings.state} does not exist.")
                return
            with self.reporter.stage("Stop pods and programs"):
                self._stop_everything()
            with self.reporter.stage("Remove what they left"):
                self._remove_traces()

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """One command at a time works on a cluster; the kernel frees the lock of a killed one."""
        self.settings.cache.mkdir(parents=True, exist_ok=True)
        with (self.settings.cache / "devcluster.lock").open("w") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.reporter.say("Waiting for another devcluster command to end …")
                fcntl.flock(stream, fcntl.LOCK_EX)
            yield

    def _refuse_taken_ports(self) -> None:
        """Ports of our own running programs are not taken; every other listener is a reason to stop early."""
        running = any(self.supervisor.record(name) for name in COMPONENTS)
        if not running:
            refuse_taken(self.settings.ports.purposes())

    def _prepare(self) -> None:
        settings = self.settings
        for folder in (settings.run, settings.logs, settings.config, settings.volumes, settings.layout):
            folder.mkdir(parents=True, exist_ok=True)
        settings.state.chmod(0o700)
        host.record_sysctls(settings)
        host.set_sysctls()
        host.make_bridge(settings.network, host.default_mtu())
        host.make_masquerade(settings)
        host.make_cgroups()

    def _write_configuration(self, binaries: Binaries) -> None:
        settings, folder = self.settings, self.settings.config
        resolvers = nodeconfig.pod_resolv_conf(Path("/etc/resolv.conf").read_text())
        files = {
            folder / "containerd.toml": nodeconfig.containerd_toml(settings),
            folder / "registries" / "localhost" / "hosts.toml": nodeconfig.registry_hosts(settings.ports.registry),
            folder / "cni" / "10-bridge.conflist": nodeconfig.cni_conflist(settings, host.default_mtu()),
            folder / "kubelet.yaml": nodeconfig.kubelet_config(settings),
            folder / "kube-proxy.yaml": nodeconfig.proxy_config(settings),
            folder / "resolv.conf": resolvers,
        }
        for path, content in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, content)
        service = settings.network.kubernetes_service
        write_credentials(self.plane, service, binaries.path("pki"), settings.kubeconfig)

    def _start_node(self, binaries: Binaries, busybox: Path) -> None:
        settings, supervisor = self.settings, self.supervisor
        cri = binaries.path("cri")
        supervisor.ensure(components.containerd(settings))
        wait_until(lambda: succeeds([cri, settings.containerd_socket, "version"]), "containerd", supervisor)
        self._pull_system_images(binaries, busybox)
        supervisor.ensure(components.kubelet(settings, binaries))
        supervisor.ensure(components.kube_proxy(settings, binaries))
        wait_until(lambda: self._node_ready(binaries), "kubelet", supervisor)
        supervisor.ensure(components.kube_router(settings, binaries))

    def _pull_system_images(self, binaries: Binaries, busybox: Path) -> None:
        """Skipped where the node has them all: the layout is written once per version of the programs."""
        settings, cri, layout = self.settings, binaries.path("cri"), Layout(self.settings.layout)
        addons.write_system_images(layout, binaries, busybox)
        pull(addons.SYSTEM_IMAGES, settings, cri, layout)

    def kubectl(self, binaries: Binaries, *arguments: str, stdin: str | None = None) -> str:
        return run([binaries.path("kubectl"), f"--kubeconfig={self.settings.kubeconfig}", *arguments], stdin=stdin)

    def _node_ready(self, binaries: Binaries) -> bool:
        try:
            node: dict[str, Any] = json.loads(self.kubectl(binaries, "get", "node", NODE_NAME, "-o", "json"))
        except CommandFailed:
            return False
        conditions = node.get("status", {}).get("conditions", [])
        return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)

    def _install_addons(self, binaries: Binaries) -> None:
        has_upstream = bool((self.settings.config / "resolv.conf").read_text())
        for manifest in (
            addons.coredns_manifest(self.settings, has_upstream),
            addons.local_path_manifest(self.settings),
            addons.kuberay_manifest(binaries.kuberay_manifests.read_text()),
        ):
            self.kubectl(binaries, "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=manifest)
        for namespace, name in addons.DEPLOYMENTS:
            status = ("rollout", "status", f"deployment/{name}", f"--namespace={namespace}", "--timeout=180s")
            self.kubectl(binaries, *status)

    def _stop_everything(self) -> None:
        for name in COMPONENTS:
            if name == "containerd":
                self._stop_pods()
            self.supervisor.stop(name)

    def _stop_pods(self) -> None:
        """Asks the runtime first, because it also frees addresses and mounts; what it cannot end is killed below."""
        if self.supervisor.record("containerd") is None:
            return
        with suppress(CommandFailed):
            cri = self.binaries().path("cri")
            run([cri, self.settings.containerd_socket, "stop-pods"], timeout=120)

    def _remove_traces(self) -> None:
        settings = self.settings
        host.kill_pods()
        host.kill_shims(settings)
        host.remove_shim_sockets(settings)
        host.unmount_below(settings.state)
        host.remove_network()
        remove_policy_rules()
        host.remove_leftover_files(settings)
        host.restore_sysctls(settings)
        for _ in range(50):  # A killed process leaves its cgroup a moment later.
            host.remove_cgroups()
            if not any((hierarchy / host.CGROUP).exists() for hierarchy in host.cgroup_hierarchies()):
                break
            time.sleep(0.1)
        shutil.rmtree(settings.state)

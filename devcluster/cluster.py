"""Our own cluster: `up` brings it from whatever state it is in to a ready one, `down` leaves nothing."""

import os
from contextlib import AbstractContextManager
from pathlib import Path

from devcluster import addons, agentsandbox, bringup, components, extras, host, kueue, kwok, teardown
from devcluster.choice import refuse_foreign_state
from devcluster.controlplane import ensure_control_plane
from devcluster.errors import CommandError, UnsuitableHostError
from devcluster.existing import report_from
from devcluster.extras import Request
from devcluster.gobuild import CONTROL_PLANE, KUBERAY_NAMESPACE, NODE, Binaries, ensure_binaries, go_command
from devcluster.loading import load_image
from devcluster.locks import exclusive
from devcluster.modules import AGENT_SANDBOX, KUEUE, KWOK
from devcluster.nodeconfig import CNI_PLUGINS
from devcluster.othernode import refuse_other_node
from devcluster.ownextras import Place, kuberay_manifests, settle
from devcluster.packages import ensure_packages
from devcluster.ports import refuse_taken
from devcluster.processes import Supervisor
from devcluster.progress import Reporter
from devcluster.settings import COREDNS_VERSION, NODE_NAME, Settings
from devcluster.shell import run
from devcluster.status import MemoryUse, Report, pod_memory, program_memory

SYSTEM_NAMESPACES = (
    "kube-system",
    "local-path-storage",
    KUBERAY_NAMESPACE,
    kueue.NAMESPACE,
    kwok.NAMESPACE,
    agentsandbox.NAMESPACE,
)


class OwnCluster:
    """A single-node Kubernetes that this machine builds and runs."""

    def __init__(self, settings: Settings, reporter: Reporter) -> None:
        self.settings = settings
        self.reporter = reporter
        self.supervisor = Supervisor(settings.run, settings.logs)

    def binaries(self) -> Binaries:
        return ensure_binaries(self.settings.cache, (*CONTROL_PLANE, *NODE), self.reporter)

    def up(self, request: Request) -> None:
        """Repairs or creates; returns when the node is Ready and the add-ons are available."""
        host.require_root("devcluster up")
        settings, plane = self.settings, components.control_plane_of(self.settings)
        with self._lock():
            teardown.finish_removal(settings)
            refuse_foreign_state(settings.state)
            refuse_other_node(settings)
            refuse_taken(settings.ports.purposes(), self._is_ours)
            go_command()  # before packages change the machine
            ensure_packages(self.reporter, CNI_PLUGINS)
            host.refuse_overlap(settings.network)
            binaries = self.binaries()
            busybox = addons.ensure_busybox(binaries)
            with self.reporter.stage("Prepare the machine"):
                bringup.prepare_machine(settings)
                bringup.write_configuration(settings, plane, binaries)
            with self.reporter.stage("Start the control plane"):
                ensure_control_plane(plane, binaries, self.supervisor)
                self.supervisor.ensure(components.scheduler(settings, binaries))
            with self.reporter.stage("Start the node"):
                bringup.start_node(settings, binaries, self.supervisor, busybox)
            self._install(binaries, request)

    def _install(self, binaries: Binaries, request: Request) -> None:
        """The choice is recorded between removal and installation: a killed `up` is repaired by the next one."""
        settings, before = self.settings, extras.recorded(self.settings.state)
        wanted, place = request.on(before), Place(settings, binaries, self.reporter)
        extras.record(settings.state, extras.Extras(tuple({*before.names, *wanted.names}), wanted.kuberay))
        kuberay = kuberay_manifests(place, wanted.kuberay)
        with self.reporter.stage(f"Install DNS, volumes and KubeRay {wanted.kuberay}"):
            bringup.install_addons(settings, binaries, kuberay, wanted.kuberay)
        settle(place, before, wanted)
        extras.record(settings.state, wanted)

    def load(self, image: str) -> None:
        host.require_root("devcluster load")
        with self._lock():
            if self.supervisor.record("containerd") is None:
                raise UnsuitableHostError("The cluster does not run. Start it with `make up`.")
            binaries = self.binaries()
            with self.reporter.stage(f"Load {image}"):
                load_image(image, self.settings, binaries.path("cri"))

    def down(self) -> None:
        """Ends and removes everything. Safe at any state, and again after it was cut short."""
        host.require_root("devcluster down")
        with self._lock():
            teardown.finish_removal(self.settings)
            refuse_foreign_state(self.settings.state)
            if not self.settings.state.exists():
                self.reporter.say(f"Nothing to remove: {self.settings.state} does not exist.")
                return
            with self.reporter.stage("Stop pods and programs"):
                teardown.stop_programs(self.settings, self.supervisor, self._program("cri"))
            with self.reporter.stage("Remove what they left"):
                teardown.remove_traces(self.settings)

    def status(self) -> Report:
        kubectl = str(self._program("kubectl"))
        report = report_from(kubectl, self.settings, "own cluster")
        programs = [self._memory(name) for name in reversed(teardown.STOP_ORDER)]
        shims = [program_memory("containerd-shim", pid) for pid in host.our_shims(self.settings)]
        return Report(
            report.backend,
            ready=report.ready and all(use.pid for use in programs),
            versions={**report.versions, **self._versions()},
            nodes=report.nodes,
            memory=[*programs, *shims, *self._pods(kubectl)],
            disk={name: disk_use(path) for name, path in self._folders().items() if path.exists()},
        )

    def _versions(self) -> dict[str, str]:
        chosen = extras.recorded(self.settings.state)
        pinned = {
            "kueue": ("Kueue", KUEUE.version),
            "kwok": ("kwok", KWOK.version),
            "agent-sandbox": ("agent-sandbox", AGENT_SANDBOX.version),
        }
        added = dict(pinned[name] for name in chosen.names)
        return {"KubeRay": chosen.kuberay, "CoreDNS": COREDNS_VERSION, **added}

    def _memory(self, name: str) -> MemoryUse:
        record = self.supervisor.record(name)
        return program_memory(name, record.pid if record else None)

    def _pods(self, kubectl: str) -> list[MemoryUse]:
        path = f"/api/v1/nodes/{NODE_NAME}/proxy/metrics/resource"
        try:
            metrics = run([kubectl, f"--kubeconfig={self.settings.kubeconfig}", "get", "--raw", path])
        except CommandError:
            return []  # The report already says that the API server or the node does not answer.
        return pod_memory(metrics, SYSTEM_NAMESPACES)

    def _folders(self) -> dict[str, Path]:
        state = self.settings.state
        names = ("etcd", "containerd", "images", "volumes", "log")
        return {**{name: state / name for name in names}, "cache": self.settings.cache / "devcluster"}

    def _program(self, name: str) -> Path:
        """A program of the newest build; stopping and looking must work without a Go tool chain."""
        built = sorted((self.settings.cache / "devcluster").glob(f"*/{name}"), key=lambda path: path.stat().st_mtime)
        return built[-1] if built else Path(name)

    def _is_ours(self, pid: int) -> bool:
        """A program that serves from our state folder: it may hold a port of ours."""
        try:
            return str(self.settings.state).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return False

    def _lock(self) -> AbstractContextManager[None]:
        """One command at a time works on a cluster."""
        return exclusive(
            self.settings.cache / "devcluster.lock",
            lambda: self.reporter.say("Waiting for another devcluster command to end …"),
        )


def disk_use(folder: Path) -> int:
    """Bytes of disk below a folder on its own file system; holes count nothing."""
    total = 0
    for path, _, files in os.walk(folder):
        for name in files:
            try:
                total += (Path(path) / name).lstat().st_blocks * 512
            except FileNotFoundError:  # Removed while we looked.
                continue
    return total

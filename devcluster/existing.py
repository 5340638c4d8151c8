"""A cluster that the user named: used as it is, with KubeRay added if it is missing."""

import json
import shutil

from devcluster.errors import CommandError, UnsuitableHostError
from devcluster.extras import Request, refuse
from devcluster.gobuild import KUBERAY_NAMESPACE, render_kuberay
from devcluster.processes import write_atomically
from devcluster.progress import Reporter
from devcluster.settings import KUBERAY_VERSION, Settings
from devcluster.shell import run, succeeds
from devcluster.status import Report


def find_kubectl(settings: Settings) -> str:
    """Kubectl on PATH, else the one that an earlier build left in the cache."""
    found = shutil.which("kubectl") or shutil.which("kubectl", path=str(settings.cache / "bin"))
    if found is None:
        raise UnsuitableHostError("kubectl is not installed; it is needed to use a cluster that exists already.")
    return found


class ExistingCluster:
    def __init__(self, context: str, settings: Settings, reporter: Reporter) -> None:
        self.context = context
        self.settings = settings
        self.reporter = reporter
        self.kubectl = find_kubectl(settings)

    def up(self, request: Request) -> None:
        """Writes a kubeconfig for this context alone, so that what follows cannot act on another cluster."""
        refuse(request, f"context {self.context}")
        try:
            view = run([self.kubectl, "config", "view", "--minify", "--flatten", f"--context={self.context}"])
        except CommandError as error:
            raise UnsuitableHostError(f"There is no context {self.context!r} in your kubeconfig.") from error
        self.settings.state.mkdir(parents=True, exist_ok=True)
        write_atomically(self.settings.kubeconfig, view, 0o600)
        self._ask("get", "--raw", "/readyz")
        ensure_kuberay(self.kubectl, self.settings, self.reporter)

    def down(self) -> None:
        """The cluster is the user's: only our record of it goes."""
        self.reporter.say(f"Cluster of context {self.context} is left as it is, KubeRay included.")
        for name in ("kubeconfig", "backend"):
            (self.settings.state / name).unlink(missing_ok=True)

    def load(self, image: str) -> None:
        raise UnsuitableHostError(
            f"{image} cannot be loaded into cluster {self.context}: push it to a registry that its nodes read."
        )

    def status(self) -> Report:
        return report_from(self.kubectl, self.settings, f"context {self.context}")

    def _ask(self, *arguments: str) -> str:
        return run([self.kubectl, f"--kubeconfig={self.settings.kubeconfig}", *arguments])


def ensure_kuberay(kubectl: str, settings: Settings, reporter: Reporter) -> None:
    """Installs KubeRay from its Go module's manifests, after saying so, where the cluster knows no RayCluster."""
    client = [kubectl, f"--kubeconfig={settings.kubeconfig}"]
    if succeeds([*client, "get", "crd", "rayclusters.ray.io"]):
        return
    manifests = settings.state / "kuberay.yaml"
    with reporter.stage(f"Install KubeRay {KUBERAY_VERSION} into namespace {KUBERAY_NAMESPACE}"):
        render_kuberay(manifests, kubectl)
        run([*client, "apply", "--server-side", "-f", manifests])
        run([*client, "rollout", "status", "deployment/kuberay-operator", "-n", KUBERAY_NAMESPACE, "--timeout=300s"])


def report_from(kubectl: str, settings: Settings, backend: str) -> Report:
    """Status of a cluster whose programs are not ours to look into."""
    client = [kubectl, f"--kubeconfig={settings.kubeconfig}"]
    try:
        version = json.loads(run([*client, "version", "-o", "json"]))["serverVersion"]["gitVersion"]
        nodes = json.loads(run([*client, "get", "nodes", "-o", "json"]))["items"]
    except CommandError as error:
        return Report(backend, ready=False, versions={}, nodes={"API server": str(error)}, memory=[], disk={})
    ready = {node["metadata"]["name"]: is_ready(node) for node in nodes}
    return Report(
        backend,
        ready=bool(ready) and all(ready.values()),
        versions={"Kubernetes": version},
        nodes={name: "Ready" if state else "NotReady" for name, state in ready.items()},
        memory=[],
        disk={},
    )


def is_ready(node: dict[str, object]) -> bool:
    """Whether a Node object's Ready condition is true."""
    status = node.get("status")
    conditions = status.get("conditions", []) if isinstance(status, dict) else []
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)

"""A cluster that the user named: used as it is, with KubeRay added if it is missing."""

import json
from collections.abc import Sequence

from devcluster.choice import CONTEXT, claim_state, release_state
from devcluster.errors import CommandError, UnsuitableHostError
from devcluster.extras import Request, refuse
from devcluster.gobuild import KUBERAY_NAMESPACE, MANAGED_BY, MANAGER, render_kuberay
from devcluster.processes import write_atomically
from devcluster.programs import ensure_clients, find_program
from devcluster.progress import Reporter
from devcluster.settings import KUBERAY_VERSION, Settings
from devcluster.shell import run, succeeds
from devcluster.status import Report


class ExistingCluster:
    def __init__(self, context: str, settings: Settings, reporter: Reporter) -> None:
        self.context = context
        self.settings = settings
        self.reporter = reporter

    @property
    def kubectl(self) -> str:
        return find_program("kubectl", self.settings) or "kubectl"

    def up(self, request: Request) -> None:
        """Writes a kubeconfig for this context alone, so that what follows cannot act on another cluster."""
        refuse(request, f"context {self.context}")
        ensure_clients(self.settings, self.reporter)
        try:
            view = run([self.kubectl, "config", "view", "--minify", "--flatten", f"--context={self.context}"])
        except CommandError as error:
            raise UnsuitableHostError(f"There is no context {self.context!r} in your kubeconfig.") from error
        claim_state(self.settings, f"{CONTEXT}{self.context}")
        write_atomically(self.settings.kubeconfig, view, 0o600)
        try:
            run([self.kubectl, f"--kubeconfig={self.settings.kubeconfig}", "get", "--raw", "/readyz"])
        except CommandError as error:
            raise UnsuitableHostError(
                f"The cluster of context {self.context!r} does not answer ({error}). Run again once it does, or forget"
                " it with `make down`."
            ) from error
        ensure_kuberay(self.kubectl, self.settings, self.reporter)

    def down(self) -> None:
        """The cluster is the user's: only our record of it goes."""
        self.reporter.say(f"Cluster of context {self.context} is left as it is, KubeRay included.")
        release_state(self.settings)

    def load(self, image: str) -> None:
        raise UnsuitableHostError(
            f"{image} cannot be loaded into cluster {self.context}: push it to a registry that its nodes read."
        )

    def status(self) -> Report:
        return report_from(self.kubectl, self.settings, f"context {self.context}")


def ensure_kuberay(kubectl: str, settings: Settings, reporter: Reporter) -> None:
    """Installs KubeRay from its Go module's manifests, after saying so, where the cluster knows no RayCluster.

    An installation of ours is applied again and waited for, because an earlier `up` may have been killed in it.
    """
    client = [kubectl, f"--kubeconfig={settings.kubeconfig}"]
    if succeeds([*client, "get", "crd", "rayclusters.ray.io"]) and not _is_ours(client):
        return
    manifests = settings.state / "kuberay.yaml"
    with reporter.stage(f"Install KubeRay {KUBERAY_VERSION} into namespace {KUBERAY_NAMESPACE}"):
        render_kuberay(manifests, kubectl)
        run([*client, "apply", "--server-side", "-f", manifests])
        run([*client, "rollout", "status", "deployment/kuberay-operator", "-n", KUBERAY_NAMESPACE, "--timeout=300s"])


def _is_ours(client: Sequence[str]) -> bool:
    """By the label of its namespace; none is found where KubeRay lives in another."""
    ours = ("get", "namespaces", f"--field-selector=metadata.name={KUBERAY_NAMESPACE}", "-o", "name")
    return bool(run([*client, *ours, f"--selector={MANAGED_BY}={MANAGER}"]).strip())


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

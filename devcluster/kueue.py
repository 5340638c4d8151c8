"""Kueue: its own chart, rendered with our image, and removed in an order that leaves nothing stuck."""

import hashlib
import json
from pathlib import Path
from typing import Any

import yaml

from devcluster.errors import CommandError
from devcluster.modules import KUEUE, Built
from devcluster.processes import write_atomically
from devcluster.shell import run

NAMESPACE = "kueue-system"
DEPLOYMENT = "kueue-controller-manager"
IMAGE = f"localhost/devcluster/kueue:{KUEUE.version}"
NAMESPACE_LABEL = "kueue.x-k8s.io/managed-namespace"
"""Kueue looks at namespaces with this label set to `true` and at no other: what else runs here stays as it is."""

FRAMEWORKS = ("ray.io/raycluster", "pod", "deployment")
"""Those that meet a HarborRLJob. Pods and Deployments are managed too, as in Kueue's default configuration: that is
what can hold back an agent server."""


def configuration() -> dict[str, Any]:
    """With `manageJobsWithoutQueueName`, the strictest setting: a child job that nobody labelled is held as well."""
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": ":8081"},
        "metrics": {"bindAddress": ":8443"},
        "webhook": {"port": 9443},
        "leaderElection": {"leaderElect": False},
        "manageJobsWithoutQueueName": True,
        "managedJobsNamespaceSelector": {"matchLabels": {NAMESPACE_LABEL: "true"}},
        "integrations": {"frameworks": list(FRAMEWORKS)},
    }


def values() -> dict[str, Any]:
    """For Kueue's chart."""
    repository, _, tag = IMAGE.rpartition(":")
    return {
        "controllerManager": {
            "replicas": 1,
            "manager": {
                "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
                "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
                # Our image names no user; the chart demands one that is not root.
                "podSecurityContext": {
                    "runAsNonRoot": True,
                    "runAsUser": 65532,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
            },
            "readinessProbe": {"initialDelaySeconds": 2, "periodSeconds": 3},
        },
        "managerConfig": {"controllerManagerConfigYaml": yaml.safe_dump(configuration(), sort_keys=False)},
    }


def manifests(built: Built, helm: str) -> str:
    """The chart of the module, rendered once for these values, with the namespace it lives in."""
    chosen = yaml.safe_dump(values(), sort_keys=False)
    file = built.folder / f"manifests-{hashlib.sha256(chosen.encode()).hexdigest()[:16]}.yaml"
    if not file.exists():
        chart = built.tree() / "charts" / "kueue"
        template: list[str | Path] = [helm, "template", "kueue", chart, f"--namespace={NAMESPACE}", "--values=-"]
        namespace = f"apiVersion: v1\nkind: Namespace\nmetadata: {{name: {NAMESPACE}}}\n"
        write_atomically(file, f"{namespace}---\n{run(template, stdin=chosen)}")
    return file.read_text()


RESOURCES = ("workloads", "localqueues", "clusterqueues", "resourceflavors", "cohorts", "topologies", "admissionchecks")
"""Kinds of Kueue whose objects carry finalizers."""


def remove(kubectl: list[str | Path]) -> None:
    """Webhooks and APIServices first: without their server they would refuse every pod and hold every namespace.

    Then the server; the finalizers that it would have removed; and what is left. What was queued stays suspended.
    """
    _delete(kubectl, "mutatingwebhookconfiguration,validatingwebhookconfiguration,apiservice")
    _delete(kubectl, "deployment", f"--namespace={NAMESPACE}")
    for resource in RESOURCES:
        _drop_finalizers(kubectl, f"{resource}.kueue.x-k8s.io")
    _drop_finalizers(kubectl, "pods", "--selector=kueue.x-k8s.io/managed=true")
    _delete(kubectl, "customresourcedefinition,clusterrole,clusterrolebinding")
    _delete(kubectl, "rolebinding", "--namespace=kube-system")
    run([*kubectl, "delete", "namespace", NAMESPACE, "--ignore-not-found"], timeout=120)


def _delete(kubectl: list[str | Path], kinds: str, *where: str) -> None:
    run([*kubectl, "delete", kinds, *where, "--selector=app.kubernetes.io/name=kueue"], timeout=120)


def _drop_finalizers(kubectl: list[str | Path], resource: str, *which: str) -> None:
    try:
        listed = json.loads(run([*kubectl, "get", resource, "--all-namespaces", *which, "--output=json"]))
    except CommandError:
        return  # this kind is not served (any more)
    for item in listed["items"]:
        meta = item["metadata"]
        if meta.get("finalizers"):
            where = [f"--namespace={meta['namespace']}"] if "namespace" in meta else []
            patch = ["--type=merge", '--patch={"metadata":{"finalizers":null}}']
            run([*kubectl, "patch", resource, meta["name"], *where, *patch])

"""Kueue's side of a test: queues for trainers and for everything else, and two priorities, in one namespace."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from support.kube import WORKLOADS, Manifest, labels_of
from support.kubectl import Kubectl
from support.workspace import Workspace, example

MANAGED = "kueue.x-k8s.io/managed-namespace"
"""By this label the dev cluster's Kueue looks at a namespace (devcluster/kueue.py)."""

TO_DO = "Kueue is not on the cluster: run `python -m devcluster up --with kueue`"


@dataclass(frozen=True)
class Queues:
    """Cluster-wide objects bear the namespace's name, so that two sessions do not meet."""

    workspace: Workspace

    @property
    def prefix(self) -> str:
        return self.workspace.namespace

    def make(self) -> None:
        """`trainers` has room for one quickstart trainer, `default` for any number of agent servers."""
        self.workspace.kubectl.apply(
            {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": self.prefix}},
            self._cluster_queue("trainers", cpu="500m", memory="3Gi"),
            self._cluster_queue("default", cpu="64", memory="256Gi"),
            self._local_queue("trainers"),
            self._local_queue("default"),
            self._priority("low", 10),
            self._priority("high", 1000),
        )
        self.workspace.kubectl.ok("label", "namespace", self.prefix, f"{MANAGED}=true", "--overwrite")

    def remove(self) -> None:
        kubectl = self.workspace.kubectl
        kubectl.ok("label", "namespace", self.prefix, f"{MANAGED}-")
        kubectl.ok("delete", "localqueue", "trainers", "default", "--ignore-not-found", timeout=120)
        names = ("trainers", "default")
        kubectl.ok("delete", "clusterqueue", *(self.name(name) for name in names), "--ignore-not-found", timeout=120)
        kubectl.ok("delete", "resourceflavor", self.prefix, "--ignore-not-found")
        classes = (self.name("low"), self.name("high"))
        kubectl.ok("delete", "workloadpriorityclass", *classes, "--ignore-not-found")

    def name(self, short: str) -> str:
        return f"{self.prefix}-{short}"

    def job(self, name: str, priority: str, changes: Mapping[str, Any]) -> Manifest:
        """The quickstart job in the queue that has room for one trainer."""
        ours = {
            "queueName": "trainers",
            "workloadPriorityClass": self.name(priority),
            "trainer.allowPartialStart": False,
            "checkpoint": {"graceSeconds": 120},
        }
        return example("job.yaml", {**ours, **changes}, name=name)

    def hold(self, queue: str, *, hold: bool) -> None:
        """Whether the queue admits nothing more; what is admitted stays."""
        policy = "Hold" if hold else "None"
        patch = f'{{"spec":{{"stopPolicy":"{policy}"}}}}'
        self.workspace.kubectl.ok("patch", "clusterqueue", self.name(queue), "--type=merge", f"--patch={patch}")

    def workloads_of(self, job: str) -> list[Manifest]:
        """Workloads of the job's RayClusters."""
        owned = self.workspace.kube.objects(WORKLOADS, self.workspace.namespace)
        return [one for one in owned if one["metadata"]["name"].startswith(f"raycluster-{job}-a")]

    def _cluster_queue(self, name: str, *, cpu: str, memory: str) -> Manifest:
        quotas = [{"name": "cpu", "nominalQuota": cpu}, {"name": "memory", "nominalQuota": memory}]
        flavor = {"name": self.prefix, "resources": quotas}
        return {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ClusterQueue",
            "metadata": {"name": self.name(name)},
            "spec": {
                "namespaceSelector": {},
                "preemption": {"withinClusterQueue": "LowerPriority"},
                "resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": [flavor]}],
            },
        }

    def _local_queue(self, name: str) -> Manifest:
        return {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "LocalQueue",
            "metadata": {"name": name, "namespace": self.prefix},
            "spec": {"clusterQueue": self.name(name)},
        }

    def _priority(self, name: str, value: int) -> Manifest:
        return {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "WorkloadPriorityClass",
            "metadata": {"name": self.name(name)},
            "value": value,
        }


def is_installed(kubectl: Kubectl) -> bool:
    return kubectl("get", "crd/workloads.kueue.x-k8s.io").returncode == 0


def queue_label(thing: Manifest) -> str | None:
    return labels_of(thing).get("kueue.x-k8s.io/queue-name")


@contextmanager
def queues_in(workspace: Workspace, kubectl: Kubectl, *jobs: str) -> Iterator[Queues]:
    """Queues as long as the block lasts, then without the jobs that were in them; fails where there is no Kueue."""
    if not is_installed(kubectl):
        pytest.fail(TO_DO, pytrace=False)
    queues = Queues(workspace)
    queues.make()
    yield queues
    for name in jobs:
        workspace.delete(name)
        workspace.until_held(lambda held: not held, name, timeout=120)
    queues.remove()

"""A job of four nodes with eight GPUs each, on nodes that kwok plays: the real scheduler and the real KubeRay place it.

What is applied is the RayCluster that the operator makes of the job, whose preflight would need a model.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from harborrl_operator.resolve import resolve
from harborrl_operator.resources.ray_cluster import ray_cluster
from support import golden, hrl
from support.kube import PODS, RAY_CLUSTERS, Manifest, name_of, status_of
from support.kubectl import Kubectl
from support.workspace import Workspace

pytestmark = [pytest.mark.cluster, pytest.mark.gpus]

NODES = ("v1", "Node")
FAKE = "devcluster/fake-node=true"
PRODUCT = "nvidia.com/gpu.product"
KWOK = {"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}
"""Taint of the fake nodes, which nothing but this test bears."""

CLAIMS = ("models", "tasks", "checkpoints", "traces", "trials")
SECONDS = 120
TO_DO = "there are no nodes with GPUs: run `python -m devcluster up --with kwok`"


@pytest.fixture(scope="module")
def nodes(kubectl: Kubectl, workspace: Workspace) -> Iterator[dict[str, Manifest]]:
    """The fake nodes by name; the claims that the pods name are bound to volumes that any node can mount."""
    found = {name_of(node): node for node in workspace.kube.objects(NODES, selector=FAKE)}
    if not found:
        pytest.fail(TO_DO, pytrace=False)
    workspace.kubectl.apply(*(thing for claim in CLAIMS for thing in volume(workspace.namespace, claim)))
    workspace.kubectl.apply(account("trainer-with-bucket"), account("harborrl-trainer"), priority())
    yield found
    workspace.kubectl.ok("delete", "raycluster", "--all", timeout=120)
    workspace.kubectl.ok("delete", "pvc", *CLAIMS, timeout=120)
    kubectl.ok("delete", "pv", *(f"{workspace.namespace}-{claim}" for claim in CLAIMS), timeout=120)
    kubectl.ok("delete", "priorityclass", "gpu-critical", "--ignore-not-found")


def volume(namespace: str, claim: str) -> tuple[Manifest, Manifest]:
    name = f"{namespace}-{claim}"
    size = {"storage": "1Gi"}
    disk: Manifest = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": size,
            "accessModes": ["ReadWriteMany"],
            "hostPath": {"path": "/nowhere"},
            "storageClassName": "none",
            "claimRef": {"namespace": namespace, "name": claim},
        },
    }
    wanted: Manifest = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": claim},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "none",
            "volumeName": name,
            "resources": {"requests": size},
        },
    }
    return disk, wanted


def account(name: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}


def priority() -> Manifest:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "gpu-critical"},
        "value": 1000,
        "preemptionPolicy": "Never",
    }


def shape(workspace: Workspace, name: str, changes: dict[str, Any]) -> Manifest:
    """The RayCluster of the golden job `gang`, without queue and RDMA devices, which no fake node has."""
    spec = yaml.safe_load((golden.DATA / "operator" / "gang" / "input.yaml").read_text())["spec"]
    for absent in ("queueName", "workloadPriorityClass"):
        del spec[absent]
    del spec["trainer"]["rdma"]
    ours = {
        "trainer.allowPartialStart": True,
        "trainer.topology": {"required": "topology.kubernetes.io/zone"},
        "trainer.tolerations": [KWOK],
    }
    job = hrl.job({**ours, **changes}, base=spec, name=name)
    cluster = ray_cluster(resolve(job, hrl.SETTINGS), 1, {})
    meta = cluster["metadata"]
    del meta["ownerReferences"]  # there is no such job, and the garbage collector would take the cluster away
    meta["namespace"] = workspace.namespace
    return cluster


def pods_of(workspace: Workspace, cluster: str, *, placed: bool) -> list[Manifest]:
    """The four pods once each is placed; or once the scheduler has said that it cannot place them."""

    def settled(pods: list[Manifest]) -> bool:
        judged = [pod for pod in pods if pod["spec"].get("nodeName") or _unschedulable(pod)]
        return len(judged) == 4 and all(bool(pod["spec"].get("nodeName")) is placed for pod in pods)

    selector = f"ray.io/cluster={cluster}"
    return workspace.kube.until(settled, PODS, workspace.namespace, selector=selector, timeout=SECONDS)


def _unschedulable(pod: Manifest) -> bool:
    conditions = status_of(pod).get("conditions") or []
    return any(one["type"] == "PodScheduled" and one.get("reason") == "Unschedulable" for one in conditions)


def test_head_and_three_workers_take_one_node_each_of_the_product_that_was_named(
    workspace: Workspace, nodes: dict[str, Manifest]
) -> None:
    workspace.kubectl.apply(shape(workspace, "gang", {}))
    pods = pods_of(workspace, "gang-a1", placed=True)
    homes = [nodes[pod["spec"]["nodeName"]] for pod in pods]
    assert len({name_of(node) for node in homes}) == 4
    assert {node["metadata"]["labels"][PRODUCT] for node in homes} == {"NVIDIA-H200"}
    assert {node["metadata"]["labels"]["topology.kubernetes.io/zone"] for node in homes} == {"fake-a"}
    kinds = sorted(pod["metadata"]["labels"]["ray.io/node-type"] for pod in pods)
    assert kinds == ["head", "worker", "worker", "worker"]
    for pod in pods:
        container = pod["spec"]["containers"][0]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "8"
        assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pod["spec"]["tolerations"]
        assert pod["spec"]["priorityClassName"] == "gpu-critical"
        assert pod["spec"]["serviceAccountName"] == "trainer-with-bucket"


def test_kuberay_calls_a_placed_gang_ready(workspace: Workspace, nodes: dict[str, Manifest]) -> None:
    assert nodes
    workspace.kube.until(
        lambda items: any(name_of(one) == "gang-a1" and status_of(one).get("state") == "ready" for one in items),
        RAY_CLUSTERS,
        workspace.namespace,
        timeout=SECONDS,
    )
    workspace.kubectl.ok("delete", "raycluster", "gang-a1", timeout=60)


@pytest.mark.parametrize(
    "changes",
    [
        {"trainer.gpuProduct": "NVIDIA-H100"},
        {"trainer.nodeSelector": {"topology.kubernetes.io/zone": "elsewhere"}},
        {"trainer.tolerations": []},
    ],
    ids=["product", "selector", "taint"],
)
def test_no_pod_is_placed_against_its_shape(
    workspace: Workspace, nodes: dict[str, Manifest], changes: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    assert nodes
    name = f"odd-{request.node.callspec.id}"
    workspace.kubectl.apply(shape(workspace, name, changes))
    pods_of(workspace, f"{name}-a1", placed=False)
    workspace.kubectl.ok("delete", "raycluster", f"{name}-a1", timeout=60)

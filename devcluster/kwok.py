"""Nodes with GPUs where there are none: kwok plays their kubelet, the scheduler takes them for real."""

import hashlib
import string
import textwrap
from pathlib import Path
from typing import Any

import yaml

from devcluster.modules import KWOK, Built
from devcluster.processes import write_atomically
from devcluster.shell import run

MANIFEST = Path(__file__).parent / "manifests" / "kwok.yaml"

NAMESPACE, DEPLOYMENT = "kwok-system", "kwok"
IMAGE = f"localhost/devcluster/kwok:{KWOK.version}"

NODE_LABEL = "devcluster/fake-node"
FAKE_TAINT = "kwok.x-k8s.io/node"
"""Nothing lands on a fake node that does not say it wants to: it would look Running and do nothing."""

GPU_NODES, GPUS = 5, 8
OTHER_NODES = 1
"""Nodes with GPUs of another product, which a product selector must leave alone."""

STAGES = ("kustomize/stage/node/fast", "kustomize/stage/node/heartbeat-with-lease", "kustomize/stage/pod/fast")


OPTIONS: dict[str, Any] = {
    "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
    "kind": "KwokConfiguration",
    "options": {
        "manageAllNodes": False,
        "manageNodesWithLabelSelector": f"{NODE_LABEL}=true",
        "nodePort": 10247,
        # The range for benchmarks: no route leads there.
        "cidr": "198.18.0.0/16",
        "nodeLeaseDurationSeconds": 40,
        "nodeLeaseParallelism": 4,
    },
}


def stages(built: Built) -> str:
    """What becomes of nodes and pods, from the module's own tree; read once."""
    file = built.folder / "stages.yaml"
    if not file.exists():
        tree = built.tree()
        found = [path for folder in STAGES for path in sorted((tree / folder).glob("*.yaml"))]
        write_atomically(file, "\n---\n".join(path.read_text() for path in found if path.name != "kustomization.yaml"))
    return file.read_text()


def manifests(built: Built) -> str:
    config = f"{yaml.safe_dump(OPTIONS, sort_keys=False)}---\n{stages(built)}"
    return string.Template(MANIFEST.read_text()).substitute(
        image=IMAGE,
        config=textwrap.indent(config, "    "),
        checksum=hashlib.sha256(config.encode()).hexdigest()[:16],
    )


def node(name: str, product: str, zone: str) -> dict[str, Any]:
    """A node as NVIDIA's GPU operator labels and taints it, in a rack of its zone."""
    capacity = {"cpu": "192", "memory": "2Ti", "ephemeral-storage": "8Ti", "pods": "110", "nvidia.com/gpu": str(GPUS)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                NODE_LABEL: "true",
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux",
                "kubernetes.io/hostname": name,
                "topology.kubernetes.io/zone": zone,
                "nvidia.com/gpu.present": "true",
                "nvidia.com/gpu.product": product,
            },
        },
        "spec": {
            "taints": [
                {"key": FAKE_TAINT, "value": "fake", "effect": "NoSchedule"},
                {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
            ]
        },
        "status": {"capacity": capacity, "allocatable": capacity},
    }


def nodes() -> list[dict[str, Any]]:
    fitting = [node(f"fake-h200-{index}", "NVIDIA-H200", "fake-a") for index in range(GPU_NODES)]
    return [*fitting, *(node(f"fake-a100-{index}", "NVIDIA-A100-SXM4-80GB", "fake-a") for index in range(OTHER_NODES))]


def apply_nodes(kubectl: list[str | Path]) -> None:
    """By a plain create: server-side apply drops the status, and with it the GPUs, of a node that is not there yet."""
    present = run([*kubectl, "get", "nodes", f"--selector={NODE_LABEL}", "--output=name"]).split()
    missing = [one for one in nodes() if f"node/{one['metadata']['name']}" not in present]
    if missing:
        run([*kubectl, "create", "-f", "-"], stdin=yaml.safe_dump_all(missing))
    run([*kubectl, "wait", "nodes", f"--selector={NODE_LABEL}", "--for=condition=Ready", "--timeout=60s"])


def remove(kubectl: list[str | Path]) -> None:
    """Pods and nodes first, while kwok still ends them."""
    for one in nodes():
        where = f"--field-selector=spec.nodeName={one['metadata']['name']}"
        run([*kubectl, "delete", "pods", "--all-namespaces", where, "--wait=false"])
    run([*kubectl, "delete", "nodes", f"--selector={NODE_LABEL}"])
    run([*kubectl, "delete", "clusterrolebinding,clusterrole", "--selector=app=kwok"])
    run([*kubectl, "delete", "namespace", NAMESPACE, "--ignore-not-found"], timeout=120)

"""A job on a real API server without a node: the operator's passes, and what kubelet and supervisor would report."""

import asyncio
import json
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from harborrl_operator.cluster import Cluster
from harborrl_operator.models import HarborRLJob, parse_job
from harborrl_operator.reconcile import Reconciler
from support import hrl

Submit = Callable[..., subprocess.CompletedProcess[str]]
KIND = "HarborRLJob"


def operator(cluster: Cluster) -> Reconciler:
    return Reconciler(cluster, hrl.SETTINGS, lambda: datetime.now(UTC))


async def job_of(cluster: Cluster, namespace: str, name: str = "quickstart") -> HarborRLJob:
    raw = await cluster.get(KIND, namespace, name)
    assert raw is not None
    return parse_job(raw)


def conditions(job: HarborRLJob) -> dict[str, tuple[str, str]]:
    return {condition.type.value: (condition.status, condition.reason) for condition in job.status.conditions}


async def eventually(holds: Callable[[], Any], seconds: float = 180.0) -> None:
    """Poll the real controllers until `holds()` is true; the bound is for a machine that is busy with other things."""
    async with asyncio.timeout(seconds):
        while not await holds():  # noqa: ASYNC110 - other programs work meanwhile; there is nothing to wait on
            await asyncio.sleep(0.2)


async def report_success(kubectl: Any, cluster: Cluster, namespace: str) -> None:
    """What the supervisor of this very run writes at its end."""
    await report(kubectl, cluster, namespace, "SUCCEEDED")


async def report(kubectl: Any, cluster: Cluster, namespace: str, state: str) -> None:
    progress = hrl.progress(state, {"uid": (await job_of(cluster, namespace)).uid})
    patch = json.dumps({"data": {"progress": progress}})
    kubectl.ok("patch", "configmap", "quickstart-progress", "-n", namespace, "--type=merge", "-p", patch)


async def set_status(kubectl: Any, namespace: str, kind: str, name: str, status: dict[str, Any]) -> None:
    """What kubelet would report."""
    patch = json.dumps({"status": status})
    kubectl.ok("patch", kind, name, "-n", namespace, "--subresource=status", "--type=merge", "-p", patch)


async def make_agent_server_ready(kubectl: Any, cluster: Cluster, namespace: str, name: str = "") -> None:
    """The real Deployment controller makes the pod and counts it once it is ready. `name`: by default the only one."""
    name = name or (await cluster.find("Deployment", namespace))[0]["metadata"]["name"]
    selector = f"harborrl.dev/role=agent-server,harborrl.dev/agent-version={name.rpartition('-')[2]}"

    async def has_pod() -> bool:
        return bool(await cluster.find("Pod", namespace, selector))

    async def is_counted() -> bool:
        found = await cluster.get("Deployment", namespace, name)
        return found is not None and found.get("status", {}).get("readyReplicas") == 1

    await eventually(has_pod)
    pod = (await cluster.find("Pod", namespace, selector))[0]["metadata"]["name"]
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    await set_status(kubectl, namespace, "pod", pod, {"phase": "Running", "conditions": [ready]})
    await eventually(is_counted)


async def walk_to_cluster(kubectl: Any, cluster: Cluster, namespace: str) -> None:
    """From a submitted job to its RayCluster, kubelet's part played by status patches."""
    await operator(cluster).reconcile(namespace, "quickstart")
    await make_agent_server_ready(kubectl, cluster, namespace)
    await operator(cluster).reconcile(namespace, "quickstart")
    state = {"terminated": {"exitCode": 0, "message": hrl.PASSED, "finishedAt": "2026-01-01T00:00:00Z"}}
    ended = {"name": "preflight", "state": state, "ready": False, "restartCount": 0, "image": "i", "imageID": "i"}
    status = {"phase": "Succeeded", "containerStatuses": [ended]}
    await set_status(kubectl, namespace, "pod", "quickstart-preflight", status)
    await operator(cluster).reconcile(namespace, "quickstart")


def anchor_of(job: HarborRLJob, name: str) -> dict[str, Any]:
    """As the agent server makes the one of a job."""
    labels = {
        "harborrl.dev/role": "anchor",
        "harborrl.dev/job": job.name,
        "harborrl.dev/job-namespace": job.namespace,
        "harborrl.dev/job-uid": job.uid,
    }
    meta = {"name": f"{job.namespace}-{name}", "namespace": "harborrl-sandboxes", "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"server": "agent-1"}}

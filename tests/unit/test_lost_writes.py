"""Whole passes of which one call is refused or lost: the status comes before what it decided is deleted."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, override

import pytest

from harborrl_operator.errors import ClusterError
from harborrl_operator.reconcile import Reconciler
from support import hrl
from support.memory_cluster import MemoryCluster

LABELS = {
    "harborrl.dev/job": "quickstart",
    "harborrl.dev/job-uid": hrl.UID,
    "harborrl.dev/role": "trainer",
    "harborrl.dev/attempt": "1",
}


class Losing(MemoryCluster):
    """Its API server conflicts on statuses, or refuses deletions, while it is told to; it writes down what it did."""

    def __init__(self, spec: dict[str, Any]) -> None:
        super().__init__(spec)
        self.loses = ""
        self.done: list[str] = []

    @override
    async def apply(self, thing: Mapping[str, Any], *, subresource: str = "") -> dict[str, Any]:
        if subresource == "status":
            if self.loses == "status":
                raise ClusterError("apply HarborRLJob quickstart", 409, "the object has been modified")
            self.done.append("status")
        return await super().apply(thing, subresource=subresource)

    @override
    async def delete(self, kind: str, namespace: str, name: str, uid: str) -> None:
        if self.loses == "deletion":
            raise ClusterError(f"delete {kind} {name}", 403, "denied by a webhook")
        self.done.append(f"delete {kind}/{name}")
        await super().delete(kind, namespace, name, uid)


async def a_pass(cluster: Losing, after: float = 0) -> None:
    cluster.done.clear()
    now = hrl.NOW + timedelta(seconds=after)
    await Reconciler(cluster, hrl.SETTINGS, lambda: now).reconcile("research", "quickstart")


def report(cluster: Losing, state: str, **changes: Any) -> None:
    data = {"data": {"progress": hrl.progress(state, **changes)}}
    cluster.put("ConfigMap", "research", "quickstart-progress", {"metadata": {"labels": LABELS}, **data})


async def begun(queue: str = "") -> Losing:
    """A job whose driver runs; `queue` is Kueue's."""
    cluster = Losing({**hrl.QUICKSTART_SPEC, **({"queueName": queue} if queue else {})})
    of = hrl.job({"queueName": queue} if queue else {})
    labels = LABELS | ({"kueue.x-k8s.io/queue-name": queue} if queue else {})
    ray = hrl.ray_cluster(of, suspend=False)
    cluster.put("RayCluster", "research", "quickstart-a1", hrl.merged(ray, {"metadata.labels": labels}))
    for role in ("head", "worker"):
        pod = hrl.trainer_pod(role)
        pod["metadata"]["labels"] |= LABELS
        cluster.put("Pod", "research", pod["metadata"]["name"], pod)
    report(cluster, "RUNNING")
    await a_pass(cluster)
    assert cluster.job["status"]["phase"] == "Running"
    return cluster


@pytest.mark.parametrize("queue", ["", "h200"])
async def test_nothing_is_deleted_by_a_decision_that_could_not_be_written(queue: str) -> None:
    cluster = await begun(queue)
    report(cluster, "FAILED", failure="infrastructure", message="NCCL")
    before = set(cluster.objects)
    cluster.loses = "status"
    for seconds in (10, 20):
        await a_pass(cluster, seconds)
        assert cluster.done == []
    assert before <= set(cluster.objects)
    cluster.loses = ""
    await a_pass(cluster, 30)
    assert cluster.done[0] == "status"
    assert len(cluster.done) > 1
    assert cluster.job["status"]["failures"]["infrastructure"] == 1


@pytest.mark.parametrize("queue", ["", "h200"])
async def test_what_the_api_server_refused_to_delete_is_deleted_later_and_charged_once(queue: str) -> None:
    cluster = await begun(queue)
    report(cluster, "FAILED", failure="infrastructure", message="NCCL")
    cluster.loses = "deletion"
    written = []
    for seconds in (10, 12, 14, 16):
        await a_pass(cluster, seconds)
        written.append(len(cluster.done))
    assert written[-1] == 0  # a refusal that lasts is written once
    cluster.loses = ""
    await a_pass(cluster, 18)
    gone = (
        {"delete Pod/quickstart-a1-head", "delete Pod/quickstart-a1-worker"}
        if queue
        else {"delete RayCluster/quickstart-a1"}
    )
    assert gone <= set(cluster.done)
    assert cluster.job["status"]["failures"]["infrastructure"] == 1
